//! Writes the shells' completions in `etc/completions` from the help and from the commands of `kp ctl`:
//! `UPDATE=1 cargo test -p kp completions`.
//!
//! Words and options are completed, files where one is named, what `explain` knows, and the levels of `log-level`; not the
//! names of upstreams and peers, for which a master would have to be asked at every press of a key.

use crate::cli::ORDERS;
use crate::ctl::words::{FORMS, Value};
use kp_worker::error_log::LEVELS;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEAD: &str =
    "Written from the command line's own tables: UPDATE=1 cargo test -p kp completions";
/// Options that something follows.
const VALUED: [&str; 5] = ["-p", "-e", "-c", "-g", "-s"];

/// Words that may follow others, with a text for each where there is one.
struct Choice {
    /// The words before.
    said: String,
    words: Vec<(String, String)>,
    /// Files are completed, too.
    files: bool,
}

/// Everything that can be completed.
struct Table {
    options: Vec<(String, String)>,
    valued: Vec<String>,
    choices: Vec<Choice>,
}

impl Table {
    fn new() -> Self {
        let help = crate::version::help();
        let mut flags: Vec<&str> = FORMS
            .iter()
            .flat_map(|form| form.flags)
            .filter(|flag| matches!(flag.value, Value::Needed(_)))
            .map(|flag| flag.name)
            .collect();
        flags.sort_unstable();
        flags.dedup();
        let mut table = Self {
            options: options(&help),
            valued: VALUED
                .iter()
                .chain(&flags)
                .map(|one| (*one).to_owned())
                .collect(),
            choices: Vec::new(),
        };
        for (word, about) in leading(&help) {
            table.choose("", &word, &about);
        }
        for form in FORMS {
            let mut said = String::from("ctl");
            for (index, word) in form.words.iter().enumerate() {
                let last = index + 1 == form.words.len();
                table.choose(&said, word, if last { form.about } else { "" });
                said = format!("{said} {word}");
            }
            for flag in form.flags {
                table.choose(&said, flag.name, "");
            }
            if form.arguments.contains("FILE") {
                table.choice(&said).files = true;
            }
            if form.arguments.contains("LEVEL") {
                for (level, _) in LEVELS {
                    table.choose(&said, level, "");
                }
                table.choose(&said, "reset", "");
            }
        }
        table.choose("ctl", "--json", "the master's answer as it is");
        table.choose("convert", "--inline", "take included files into the YAML");
        table.choice("convert").files = true;
        let mut names: Vec<&str> = kp_config::directives::all()
            .map(|entry| entry.name)
            .chain(kp_worker::Reason::ALL.iter().map(|reason| reason.token()))
            .collect();
        names.sort_unstable();
        for name in names {
            table.choose("explain", name, "");
        }
        for context in kp_config::schema::contexts() {
            table.choose("schema", &context, "");
        }
        table
    }

    fn choice(&mut self, said: &str) -> &mut Choice {
        let at = self.choices.iter().position(|choice| choice.said == said);
        let at = at.unwrap_or_else(|| {
            self.choices.push(Choice {
                said: said.to_owned(),
                words: Vec::new(),
                files: false,
            });
            self.choices.len() - 1
        });
        &mut self.choices[at]
    }

    fn choose(&mut self, said: &str, word: &str, about: &str) {
        let words = &mut self.choice(said).words;
        if !words.iter().any(|(known, _)| known == word) {
            words.push((word.to_owned(), about.to_owned()));
        }
    }

    fn bash(&self) -> String {
        let (letters, orders, valued) = (self.letters(), orders(), self.valued.join("|"));
        let mut text = format!(
            "# Completion of kp(8) for bash.\n# {HEAD}\n\
             _kp() {{\n    local cur=${{COMP_WORDS[COMP_CWORD]}} said= files= i\n    \
             case ${{COMP_WORDS[COMP_CWORD - 1]}} in\n    \
             -p) mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); return ;;\n    \
             -c | -e) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n    \
             -s) mapfile -t COMPREPLY < <(compgen -W '{orders}' -- \"$cur\"); return ;;\n    \
             {valued}) return ;;\n    esac\n    \
             for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${{COMP_WORDS[i]}} in\n        \
             {valued}) i=$((i + 1)) ;;\n        -*) ;;\n        *) said=${{said:+$said }}${{COMP_WORDS[i]}} ;;\n        \
             esac\n    done\n    local words=\n    case $said in\n"
        );
        for choice in &self.choices {
            let words: Vec<&str> = choice.words.iter().map(|(word, _)| word.as_str()).collect();
            let letters = if choice.said.is_empty() {
                format!(" {letters}")
            } else {
                String::new()
            };
            let files = if choice.files { " files=1" } else { "" };
            let _ = writeln!(
                text,
                "    '{}') words='{}{letters}'{files} ;;",
                choice.said,
                words.join(" ")
            );
        }
        text.push_str(
            "    esac\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n    if [[ $files ]]; then\n        compopt -o filenames 2>/dev/null\n        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$cur\")\n    fi\n}\ncomplete -F _kp kp\n",
        );
        text
    }

    fn zsh(&self) -> String {
        let (orders, valued) = (orders(), self.valued.join("|"));
        let mut text = format!(
            "#compdef kp\n# Completion of kp(8) for zsh.\n# {HEAD}\n\
             _kp() {{\n    local said= i\n    local -a choices\n    \
             case ${{words[CURRENT - 1]}} in\n    \
             -p) _files -/; return ;;\n    -c|-e) _files; return ;;\n    \
             -s) compadd -- {orders}; return ;;\n    {valued}) return ;;\n    esac\n    \
             for ((i = 2; i < CURRENT; i++)); do\n        case ${{words[i]}} in\n        \
             {valued}) i=$((i + 1)) ;;\n        -*) ;;\n        *) said=${{said:+$said }}${{words[i]}} ;;\n        \
             esac\n    done\n    case $said in\n"
        );
        for choice in &self.choices {
            let described: Vec<String> = choice
                .words
                .iter()
                .map(|(word, about)| match about.as_str() {
                    "" => format!("'{word}'"),
                    about => format!(
                        "'{word}:{}'",
                        about.replace('\'', "'\\''").replace(':', "\\:")
                    ),
                })
                .collect();
            let letters = if choice.said.is_empty() {
                format!(" '{}'", self.letters().replace(' ', "' '"))
            } else {
                String::new()
            };
            let files = if choice.files { "; _files" } else { "" };
            let _ = writeln!(
                text,
                "    '{}') choices=({}{letters}){files} ;;",
                choice.said,
                described.join(" ")
            );
        }
        text.push_str("    esac\n    _describe kp choices\n}\n_kp \"$@\"\n");
        text
    }

    fn fish(&self) -> String {
        let valued = self.valued.join(" ");
        let mut text = format!(
            "# Completion of kp(8) for fish.\n# {HEAD}\n\
             function __kp_said\n    set -l skip 0\n    set -l said\n    \
             for word in (commandline -opc)[2..]\n        if test $skip = 1\n            set skip 0\n            continue\n        end\n        \
             switch $word\n            case {valued}\n                set skip 1\n            case '-*'\n            case '*'\n                set -a said $word\n        end\n    end\n    \
             test \"$said\" = \"$argv\"\nend\n\ncomplete -c kp -f\n"
        );
        for (letter, about) in &self.options {
            let needs = match letter.as_str() {
                "-p" => " -x -a '(__fish_complete_directories)'".to_owned(),
                "-c" | "-e" => " -r -F".to_owned(),
                "-s" => format!(" -x -a '{}'", orders()),
                letter if VALUED.contains(&letter) => " -x".to_owned(),
                _ => String::new(),
            };
            let kind = if letter.starts_with("--") { "-l" } else { "-s" };
            let letter = letter.trim_start_matches('-');
            let _ = writeln!(
                text,
                "complete -c kp {kind} '{letter}'{needs} -d '{}'",
                quoted(about)
            );
        }
        for choice in &self.choices {
            for (word, about) in &choice.words {
                let what = match word.strip_prefix("--") {
                    Some(name) if self.valued.contains(word) => format!("-x -l {name}"),
                    Some(name) => format!("-l {name}"),
                    None => format!("-a '{word}'"),
                };
                let about = if about.is_empty() {
                    String::new()
                } else {
                    format!(" -d '{}'", quoted(about))
                };
                let _ = writeln!(
                    text,
                    "complete -c kp -n '__kp_said {}' {what}{about}",
                    choice.said
                );
            }
            if choice.files {
                let _ = writeln!(text, "complete -c kp -n '__kp_said {}' -F", choice.said);
            }
        }
        text
    }

    fn letters(&self) -> String {
        let letters: Vec<&str> = self
            .options
            .iter()
            .map(|(letter, _)| letter.as_str())
            .collect();
        letters.join(" ")
    }
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

fn orders() -> String {
    ORDERS.map(|(name, _)| name).join(" ")
}

/// The options of the help, with the first line that is said about them.
fn options(help: &str) -> Vec<(String, String)> {
    let (_, rest) = help.split_once("Options:\n").unwrap();
    let lines = rest.lines().take_while(|line| !line.is_empty());
    let mut options = Vec::new();
    for line in lines.filter(|line| line.starts_with("  -")) {
        let (names, about) = line.split_once(" : ").unwrap();
        for name in names.trim().split(',') {
            let name = name.split(' ').next().unwrap();
            options.push((name.to_owned(), about.trim().to_owned()));
        }
    }
    options
}

/// The words that a command line may begin with, from the lines of usage.
fn leading(help: &str) -> Vec<(String, String)> {
    let usage = help
        .lines()
        .filter_map(|line| line.strip_prefix("       kp "));
    let words = usage.filter_map(|line| line.split(' ').next());
    let about = |word: &str| {
        let mut lines = help.lines();
        let line = lines.find_map(|line| line.strip_prefix(&format!("{word} ")));
        let sentence = line.and_then(|line| line.split([',', ';']).next());
        let sentence = sentence.and_then(|line| line.split(". ").next());
        sentence
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_owned()
    };
    words.map(|word| (word.to_owned(), about(word))).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc/completions")
}

#[test]
fn completions_know_every_word() {
    let table = Table::new();
    for (name, text) in [
        ("kp.bash", table.bash()),
        ("_kp", table.zsh()),
        ("kp.fish", table.fish()),
    ] {
        let path = folder().join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "etc/completions/{name} is not what the command line knows; run this test with UPDATE=1"
        );
        for form in FORMS {
            for word in form.words {
                assert!(text.contains(word), "{word} in {name}");
            }
        }
    }
    let words: Vec<String> = leading(&crate::version::help())
        .into_iter()
        .map(|(word, _)| word)
        .collect();
    for word in ["status", "ctl", "explain", "demo-upstream"] {
        assert!(words.iter().any(|known| known == word), "{words:?}");
    }
}

/// What a shell says; `None`: it is not installed.
fn shell(name: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(name)
        .args(arguments)
        .current_dir(folder())
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{name} {arguments:?}: {output:?}"
    );
    Some(said)
}

#[test]
fn completions_are_understood_by_their_shells() {
    let _ = shell("zsh", &["-n", "_kp"]);
    let _ = shell("fish", &["-n", "kp.fish"]);
    for (line, words) in [
        ("kp ", &["status", "ctl", "demo-upstream", "explain"][..]),
        ("kp ctl ", &["requests", "connections", "log-level"]),
        ("kp -p /srv ctl log", &["log-level"]),
        ("kp ctl log-level re", &["reset"]),
        ("kp -s re", &["reopen", "reload"]),
    ] {
        let count = line.split(' ').count() - 1;
        let script = format!(
            "source kp.bash; read -ra COMP_WORDS <<<'{line}'; COMP_CWORD={count}; _kp; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        // Only for scripts that POSIX has no words for: bash is where completions for it are.
        let bash = shell("bash", &["-c", &script]).unwrap();
        let fish = shell(
            "fish",
            &["-c", &format!("source kp.fish; complete -C '{line}'")],
        );
        for said in [Some(bash), fish].into_iter().flatten() {
            let found: Vec<&str> = said
                .lines()
                .filter_map(|line| line.split('\t').next())
                .collect();
            for word in words {
                assert!(found.contains(word), "{line}: {word} in {found:?}");
            }
        }
    }
}
