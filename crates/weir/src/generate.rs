//! Generates man pages and completions from the definition of the command line, and further man pages from the documents.

use std::fs;
use std::path::Path;

use clap_complete::Shell;

use crate::Failure;
use crate::cli;
use crate::exit::Exit;
use crate::man_page::PAGES;

/// Writes `man/*` and `completions/*` into `folder`.
pub fn run(folder: &Path) -> Result<Exit, Failure> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    let written = fs::create_dir_all(&man)
        .and_then(|()| fs::create_dir_all(&completions))
        .and_then(|()| clap_mangen::generate_to(cli::command().after_help(Exit::table()), &man))
        .and_then(|()| {
            let page = man.join("weir.1");
            fs::write(&page, cli::page_in_groups(&fs::read_to_string(&page)?))
        })
        .and_then(|()| PAGES.iter().try_for_each(|page| fs::write(man.join(page.file()), page.roff())))
        .and_then(|()| {
            [Shell::Bash, Shell::Zsh, Shell::Fish].iter().try_for_each(|shell| {
                clap_complete::generate_to(*shell, &mut cli::command(), "weir", &completions).map(drop)
            })
        });
    written.map_err(|error| {
        Failure::new(Exit::Failed, error)
            .while_doing(format!("cannot write man pages and completions to {}", folder.display()))
    })?;
    Ok(Exit::Done)
}
