//! `weir bench study`: the shipped campaigns, on systems that are named on the command line.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::campaign::{Campaign, Work, estimate};
use bench::study::{Prepared, StudyRequest, UprootRequest, made_file, system, systems_of, table};
use bench::units::{Family, counted, show_estimate, show_rate, show_sum};
use bench::workload::{DEFAULT_PYTHON, JobTool, make_file};
use console::{Exit, Failure};

use crate::campaign::{
    SUPPOSED_BYTE_RATE, SUPPOSED_OPERATION_RATE, check_places, default_folder, do_campaign, dry_run,
};
use crate::options::StudyOptions;
use crate::results::read;
use crate::{failed, printed, quick, say, text_of, usage};

pub(super) fn run(args: &StudyOptions) -> Result<Exit, Failure> {
    let study = args.study;
    let root_file = args.root_file.as_deref().map(std::path::absolute).transpose().map_err(usage)?;
    let mut systems = match &args.systems {
        Some(file) => {
            let text = text_of("systems", file)?;
            systems_of(&text).map_err(|error| usage(error).while_doing(format!("read {}", file.display())))?
        }
        None => Vec::new(),
    };
    systems.extend(named(&args.targets).iter().map(|(name, place)| system(name, place)));
    let (scale, repeats) = (args.scale, args.repeats);
    let uproot = uproot(args, root_file.as_deref())?;
    let asked = StudyRequest { systems, scale, repeats, root_file: root_file.as_deref(), uproot: uproot.as_ref() };
    let prepared = study.prepare(&asked).map_err(usage)?;
    let to_make = uproot.as_ref().filter(|uproot| uproot.is_made && !uproot.file.exists());
    if args.dry_run {
        dry_run(&prepared.campaign, to_make.map(|uproot| uproot.file.as_path()))?;
        tell(&prepared, args.scale)?;
        check_places(&prepared.campaign)?;
        return Ok(Exit::Done);
    }
    if !args.how.json {
        tell(&prepared, args.scale)?;
    }
    if let Some(uproot) = to_make {
        // What the jobs need is known before the file is made.
        prepared.campaign.works().iter().try_for_each(Work::try_tools).map_err(usage)?;
        make(uproot, args)?;
    }
    let exit = do_campaign(&prepared.campaign, &prepared.source, &args.how, None)?;
    if !args.how.json {
        let path = args.how.results.clone().unwrap_or_else(|| default_folder(&prepared.campaign.name));
        let (_, _, summary) = read(&path)?;
        let text = table(&prepared, &summary, args.rate);
        let mut out = std::io::stdout().lock();
        printed(writeln!(out, "\n{text}").and_then(|()| out.flush()))?;
    }
    Ok(exit)
}

/// The shortest round trip that a delayed path can have.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(1);

/// Returns how uproot runs, if it was asked for.
fn uproot(args: &StudyOptions, root_file: Option<&Path>) -> Result<Option<UprootRequest>, Failure> {
    let Some(JobTool::Uproot) = args.by else { return Ok(None) };
    if args.round_trip.is_some_and(|time| time < ROUND_TRIP_MIN) {
        return Err(usage("--round-trip takes a millisecond or more: shorter paths need no delay"));
    }
    let results = args.how.results.clone().unwrap_or_else(|| default_folder(&format!("study {}", args.study)));
    let file = match root_file {
        Some(file) => file.to_owned(),
        None => {
            let mut name = results.into_os_string();
            let clusters = made_file(Path::new(""), args.scale.max(1.0)).clusters;
            name.push(format!("-uproot-{clusters}.root"));
            std::path::absolute(name).map_err(usage)?
        }
    };
    let (with, python, round_trip) = (args.uproot_with, args.python.clone(), args.round_trip);
    Ok(Some(UprootRequest { file, is_made: root_file.is_none(), with, python, round_trip }))
}

/// Makes the ROOT file. It stays, because a run that continues needs the same one.
fn make(uproot: &UprootRequest, args: &StudyOptions) -> Result<(), Failure> {
    let python = uproot.python.as_deref().unwrap_or(Path::new(DEFAULT_PYTHON));
    if let Some(folder) = uproot.file.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut part = uproot.file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let in_making = || format!("make {}", uproot.file.display());
    make_file(python, &made_file(&part, args.scale)).map_err(|error| usage(error).while_doing(in_making()))?;
    std::fs::rename(&part, &uproot.file).map_err(|error| failed(error).while_doing(in_making()))?;
    say(&format!("made {} with uproot", uproot.file.display()));
    Ok(())
}

/// Names and places of targets: `NAME=PLACE`, or a place, which is named as in `weir bench quick`.
fn named(targets: &[String]) -> Vec<(String, String)> {
    let own = |target: &String| {
        let (name, place) = target.split_once('=')?;
        // A path or a URL may hold a `=`, but never begins like a name.
        let is_name = !name.is_empty() && !name.contains(['/', ':', '?']);
        is_name.then(|| (name.to_owned(), place.to_owned()))
    };
    let places: Vec<String> =
        targets.iter().map(|target| own(target).map_or(target.clone(), |(_, place)| place)).collect();
    let one = |(number, target): (usize, &String)| {
        own(target).unwrap_or_else(|| (quick::name(&places, number), target.clone()))
    };
    targets.iter().enumerate().map(one).collect()
}

/// Describes the work of a campaign, and how long it takes at the assumed rates.
fn needs(campaign: &Campaign, family: Family) -> String {
    let found = estimate(campaign, SUPPOSED_BYTE_RATE, SUPPOSED_OPERATION_RATE);
    let [moved, room] = [found.moved, found.room].map(|bytes| show_sum(bytes, family));
    let time = show_estimate(found.time);
    let trials = counted(found.trials as u64, "trial", "trials");
    format!("{trials}, {moved} moved in all, {room} on a system at a time, about {time}")
}

/// Prints the needs of this scaled study and of the full one.
fn tell(prepared: &Prepared, scale: f64) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    // Scaling rounds sizes to whole MiB. Both sums are in the units of the study, so that they can be compared.
    let family = prepared.full.size_family();
    let byte_rate = show_rate(SUPPOSED_BYTE_RATE);
    let rates = format!("{byte_rate} and {SUPPOSED_OPERATION_RATE} small operations a second");
    let mut told = writeln!(out, "{}\nthis run:   {}", prepared.about.title, needs(&prepared.campaign, family));
    if scale > 1.0 {
        told = told.and_then(|()| writeln!(out, "full study: {}", needs(&prepared.full, family)));
    }
    printed(told.and_then(|()| writeln!(out, "(at {rates}; scale {scale})\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needs_of_a_full_study_are_told_in_days_and_in_its_units() {
        let systems = vec![system("a", "/a"), system("b", "/b")];
        let asked = StudyRequest { systems, scale: 1.0, repeats: None, root_file: None, uproot: None };
        let prepared = bench::study::Study::A.prepare(&asked).unwrap();
        let said = needs(&prepared.full, prepared.full.size_family());
        assert!(said.ends_with(" days") && said.contains(" TB moved in all, 300 GB on a system at a time"), "{said}");
    }

    #[test]
    fn targets_have_given_names_or_those_of_their_places() {
        let targets = ["xrootd=root://h//d", "/mnt/a=b", "/mnt/c", "http://h/x=1"].map(str::to_owned);
        let found = named(&targets);
        let expected = [("xrootd", "root://h//d"), ("a=b", "/mnt/a=b"), ("c", "/mnt/c"), ("x=1", "http://h/x=1")];
        assert_eq!(found, expected.map(|(name, place)| (name.to_owned(), place.to_owned())));
    }
}
