//! `kaido init`: a first configuration, made of a few answers and of what the machine has.
//!
//! ```text
//!   options ─┐
//!   answers ─┴▶ what a function asks ─▶ its text ─▶ checked as at a start ─▶ the file
//!   machine ─┘
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::file::Config;
use crate::function::NetworkFunction;
use crate::init::{Asker, Machine, ask};

/// The file that a service reads.
const DEFAULT_FILE: &str = "/etc/kaido/kaido.toml";

/// The command line of `kaido init`: one command for each function that has a first configuration.
pub(crate) fn command(functions: &[&dyn NetworkFunction]) -> Command {
    let output = Arg::new("output").long("output").short('o').value_name("FILE").default_value(DEFAULT_FILE);
    let output = output.value_parser(clap::value_parser!(PathBuf));
    let common = [
        output.help("The file to write; `-` prints it"),
        Arg::new("force")
            .long("force")
            .action(ArgAction::SetTrue)
            .help("Replace a file that is there; it is kept beside it as FILE.before"),
        Arg::new("defaults")
            .long("defaults")
            .action(ArgAction::SetTrue)
            .help("Ask nothing: what is not given is as it is proposed"),
    ];
    let of_function = |function: &&dyn NetworkFunction| {
        let first = function.first_config()?;
        let options = first.questions.iter().map(|question| {
            let option = Arg::new(question.name).long(question.name).value_name(question.value_name);
            option.help(question.asks)
        });
        let about = format!("Write a first configuration: {}", function.schema().title);
        Some(Command::new(function.name()).about(about).args(options).args(common.clone()))
    };
    Command::new("init")
        .about("Ask a few questions, look at the machine, and write a first configuration")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(functions.iter().filter_map(of_function))
}

/// `kaido init`.
///
/// # Errors
/// An answer that cannot be, or a file that cannot be written.
pub(crate) fn run(matches: &ArgMatches, functions: &[&dyn NetworkFunction]) -> miette::Result<()> {
    let found = matches.subcommand().and_then(|(name, given)| {
        let function = functions.iter().find(|function| function.name() == name)?;
        Some((function.first_config()?, given))
    });
    // The command line has no others.
    let Some((first, given)) = found else { return Ok(()) };
    let machine = Machine::look().into_diagnostic().wrap_err("the machine's interfaces")?;
    let file = given.get_one::<PathBuf>("output").cloned().unwrap_or_default();
    let is_printed = file.as_os_str() == "-";
    let is_asked = !given.get_flag("defaults");
    let mut asker = Asker { input: io::stdin().lock(), output: io::stderr(), is_asked };
    if !is_printed && file.exists() && !given.get_flag("force") {
        let replaces = is_asked && asker.confirms(&format!("{} is there. Replace it?", file.display()))?;
        if !replaces {
            return Err(miette!(
                help = "--force replaces it and keeps the old one beside it; --output names another",
                "{} is there already",
                file.display()
            ));
        }
    }
    let answers = ask(&first, |name| given.get_one::<String>(name).cloned(), &machine, &mut asker)?;
    let text = (first.write)(&answers, &machine);
    let config = Config::parse(&file, text.clone(), functions)?;
    if is_printed {
        return io::stdout().write_all(text.as_bytes()).into_diagnostic();
    }
    write(&file, &text)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} cannot be written", file.display()))?;
    println!("{}: written and good: {}", file.display(), config.summary());
    (first.next)(&answers, &machine).iter().for_each(|line| println!("- {line}"));
    println!(
        "- `kaido doctor -c {0}` says what this machine could do better, `kaido run -c {0}` starts",
        file.display()
    );
    Ok(())
}

/// Writes a file; what was there is kept beside it.
fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut before = file.to_path_buf().into_os_string();
    before.push(".before");
    match fs::rename(file, before) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::write(file, text)
}
