//! `weir bench report` and `compare`: folders of results as tables, pages and differences.

use std::io::Write as _;
use std::path::Path;

use bench::campaign::Campaign;
use bench::report::{Page, Summary, csv, difference, settings_of_run, summarise, text};
use bench::result::{DerivedFile, ResultFolder, whole};
use bench::units::counted;
use console::{Exit, Failure};

use crate::options::{CompareOptions, ReportOptions};
use crate::{failed, printed, usage};

pub(crate) fn print(results: &ResultFolder, summary: &Summary, json: bool) -> Result<(), Failure> {
    let text = if json { serde_json::to_string_pretty(summary).map_err(failed)? + "\n" } else { text(summary) };
    let mut out = std::io::stdout().lock();
    let trials = || counted(whole(&results.trials).len() as u64, "trial", "trials");
    let mut say = || {
        out.write_all(text.as_bytes())?;
        if !json {
            writeln!(out, "\n{} in {}", trials(), results.path().display())?;
        }
        out.flush()
    };
    printed(say())
}

/// Writes the page with its figures, the table and the summary beside the trials.
pub(crate) fn write_reports(results: &ResultFolder, campaign: &Campaign, summary: &Summary) -> Result<(), Failure> {
    let page = Page { head: &results.head, campaign, trials: &results.trials, summary };
    let json = serde_json::to_string_pretty(summary).map_err(failed)? + "\n";
    let rendered = page.render();
    for (file, text) in
        [(DerivedFile::Page, rendered.html), (DerivedFile::Table, csv(summary)), (DerivedFile::Summary, json)]
    {
        results.write_beside(file, &text).map_err(failed)?;
    }
    let figures = rendered.figures.iter().map(|file| (file.name.as_str(), file.svg.as_str()));
    results.write_figures(figures).map_err(failed)
}

/// Reads a folder of results: the folder, its campaign, and its summary.
pub(crate) fn read(folder: &Path) -> Result<(ResultFolder, Campaign, Summary), Failure> {
    let results = ResultFolder::read(folder).map_err(usage)?;
    let campaign = Campaign::parse(&results.head.campaign)
        .map_err(|error| usage(error).while_doing(format!("the campaign in {}", folder.display())))?;
    let summary = summarise(&results.trials, &campaign, &results.head);
    Ok((results, campaign, summary))
}

/// Exit code 0: nothing is surely slower in the second run; 1: something is.
pub(crate) fn compare(args: &CompareOptions) -> Result<Exit, Failure> {
    let ((first, _, before), (second, _, after)) = (read(&args.first)?, read(&args.second)?);
    let found = difference(
        (&before, &settings_of_run(&first.head, &first.trials)),
        (&after, &settings_of_run(&second.head, &second.trials)),
    );
    let text = if args.json { serde_json::to_string_pretty(&found).map_err(failed)? + "\n" } else { found.text() };
    let mut out = std::io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))?;
    if found.rows.is_empty() {
        return Err(Failure::message(Exit::Usage, "there is nothing to compare: the two runs have no row in common"));
    }
    Ok(if found.is_slower() { Exit::Wrong } else { Exit::Done })
}

pub(crate) fn report(args: &ReportOptions) -> Result<Exit, Failure> {
    for folder in &args.folders {
        let (results, campaign, summary) = read(folder)?;
        print(&results, &summary, args.json)?;
        write_reports(&results, &campaign, &summary)?;
    }
    Ok(Exit::Done)
}
