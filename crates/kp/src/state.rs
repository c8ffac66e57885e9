//! `state` files: what was changed at run time, one file for each group that wants it.
//!
//! A file is written beside its place, made durable and renamed, so that it is whole at any moment; several are written
//! before the first is renamed. It belongs to the user of the master and is nobody else's to read. What the master did not
//! write itself it never writes over: somebody's edit is taken up by the next start or reload, or is in the way.

use crate::pidfile::beside;
use crate::report;
use kp_config::model::Upstream;
use kp_config::overrides::{Complaint, GroupOverrides, Overrides, TEXT_MAX_BYTES};
use kp_config::{Config, Diagnostic};
use kp_sys::process;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a file's name ends with while it is written.
const UNFINISHED: &str = "new";

/// What the files of a configuration say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// By the name of the group: what is in its file, and the file's text.
    groups: BTreeMap<String, (GroupOverrides, String)>,
}

/// Reads the files of a configuration. One that is not there says nothing; one that cannot be used is an error.
pub(crate) fn read(config: &Config) -> Result<Kept, Vec<Diagnostic>> {
    let (mut kept, mut complaints) = (Kept::default(), Vec::new());
    for upstream in &config.http.upstreams {
        let Some(state) = &upstream.state else {
            continue;
        };
        match read_one(&state.value, &upstream.name) {
            Ok(None) => {}
            Ok(Some(found)) => {
                kept.groups.insert(upstream.name.clone(), found);
            }
            Err(complaint) => {
                let error = Diagnostic::error(state.span, complaint.error);
                complaints.push(match complaint.hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                });
            }
        }
    }
    if complaints.is_empty() {
        Ok(kept)
    } else {
        Err(complaints)
    }
}

fn read_one(path: &Path, upstream: &str) -> Result<Option<(GroupOverrides, String)>, Complaint> {
    let shown = path.display();
    if !path.parent().is_some_and(Path::is_dir) {
        let error = format!("the directory of state file \"{shown}\" does not exist");
        return Err(
            Complaint::new(error).hint("make it, writable for the user that kp is started by")
        );
    }
    let Some(text) = text_of(path).map_err(|error| unreadable(path, &error))? else {
        return Ok(None);
    };
    let found = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let own = found.uid() == 0 || found.uid() == process::effective_uid();
    if !own || found.mode() & 0o022 != 0 {
        let error = format!("state file \"{shown}\" can be changed by others");
        let hint = format!("it decides where requests go: make it yours alone (chmod 600 {shown})");
        return Err(Complaint::new(error).hint(hint));
    }
    let group = GroupOverrides::from_text(&text, upstream).map_err(|unreadable| {
        let error = format!("state file \"{shown}\" cannot be used: {unreadable}");
        Complaint::new(error).hint("it is left as it is: mend that line, or move the file away and lose the run-time changes")
    })?;
    Ok(Some((group, text)))
}

fn unreadable(path: &Path, error: &io::Error) -> Complaint {
    Complaint::new(report::failed("open()", path, error))
}

/// The text of a file; `None`: there is none.
fn text_of(path: &Path) -> io::Result<Option<String>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(found) if !found.is_file() => {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(_) => {}
    }
    let bytes = kp_sys::io::read_file(path, TEXT_MAX_BYTES as u64)?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| io::Error::other("it is no text"))
}

/// The files as this master knows them.
#[derive(Debug, Default)]
pub(crate) struct StateFiles {
    /// What stands in each that it has read or written.
    known: BTreeMap<PathBuf, String>,
}

/// Files whose text was not this master's, by path.
pub(crate) type Adopted = BTreeMap<PathBuf, String>;

impl StateFiles {
    /// What holds for a configuration: what its files say, where that is not what this master wrote there, and else what
    /// held before. Also the files that were taken up so; they are [known](Self::adopt) when the configuration is used.
    pub(crate) fn merge(
        &self,
        held: &Overrides,
        kept: &Kept,
        config: &Config,
    ) -> (Overrides, Adopted) {
        let (mut merged, mut adopted) = (held.clone(), Adopted::new());
        for (upstream, path) in with_state(config) {
            let Some((group, text)) = kept.groups.get(&upstream.name) else {
                continue;
            };
            if self.known.get(path) != Some(text) {
                merged.put(GroupOverrides::new(&upstream.name));
                merged.put(group.clone());
                adopted.insert(path.to_owned(), text.clone());
            }
        }
        (merged, adopted)
    }

    /// These were taken up.
    pub(crate) fn adopt(&mut self, adopted: Adopted) {
        self.known.extend(adopted);
    }

    /// Writes the files of the groups whose text is another one now: all of them or none.
    pub(crate) fn keep(&mut self, overrides: &Overrides, config: &Config) -> Result<(), Complaint> {
        let mut files = Vec::new();
        for (upstream, path) in with_state(config) {
            let none = GroupOverrides::new(&upstream.name);
            let group = overrides.group(&upstream.name).unwrap_or(&none);
            let text = group.to_text();
            let known = self.known.get(path);
            // Where nothing was ever changed there is no file.
            if known != Some(&text) && (known.is_some() || !group.is_empty()) {
                files.push((path.to_owned(), text));
            }
        }
        self.write(files)
    }

    fn write(&mut self, files: Vec<(PathBuf, String)>) -> Result<(), Complaint> {
        for (path, _) in &files {
            let there = text_of(path).map_err(|error| unreadable(path, &error))?;
            if there.is_some() && there.as_ref() != self.known.get(path) {
                let error = format!(
                    "state file \"{}\" was changed by somebody else",
                    path.display()
                );
                return Err(Complaint::new(error)
                    .hint("a reload takes it up; or move it away, and it is written anew"));
            }
        }
        let written = files.iter().try_for_each(|(path, text)| {
            let unfinished = beside(path, UNFINISHED);
            write_new(&unfinished, text)
                .map_err(|error| unkept(report::failed("write()", &unfinished, &error)))
        });
        let placed = written.and_then(|()| self.place(&files));
        if placed.is_err() {
            for (path, _) in &files {
                let _ = fs::remove_file(beside(path, UNFINISHED));
            }
        }
        placed
    }

    /// Gives the files their names; if that fails in the middle the first ones get back what they had.
    fn place(&mut self, files: &[(PathBuf, String)]) -> Result<(), Complaint> {
        for (at, (path, _)) in files.iter().enumerate() {
            if let Err(error) = fs::rename(beside(path, UNFINISHED), path) {
                for (path, _) in files.iter().take(at) {
                    self.put_back(path);
                }
                return Err(unkept(report::failed("rename()", path, &error)));
            }
        }
        for (path, text) in files {
            // The names are durable, too; where a file system knows no such thing there is nothing to be done.
            let _ = path
                .parent()
                .map(|folder| File::open(folder).and_then(|folder| folder.sync_all()));
            self.known.insert(path.clone(), text.clone());
        }
        Ok(())
    }

    fn put_back(&self, path: &Path) {
        let done = match self.known.get(path) {
            None => fs::remove_file(path),
            Some(text) => {
                let unfinished = beside(path, UNFINISHED);
                write_new(&unfinished, text).and_then(|()| fs::rename(&unfinished, path))
            }
        };
        if let Err(error) = done {
            log::error!(target: "alert", "{}", report::failed("write()", path, &error));
        }
    }
}

fn with_state(config: &Config) -> impl Iterator<Item = (&Upstream, &Path)> {
    let upstreams = config.http.upstreams.iter();
    upstreams.filter_map(|upstream| Some((upstream, upstream.state.as_ref()?.value.as_path())))
}

fn unkept(error: String) -> Complaint {
    Complaint::new(error).hint("nothing was changed, since it could not be kept")
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    // What a master left that was killed while it wrote.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_config::LoadOptions;
    use std::os::unix::fs::PermissionsExt;

    fn config(folder: &Path) -> Config {
        let path = folder.join("kp.conf");
        let text = "events {} http { upstream a { server 127.0.0.1:1; state a.state; } upstream b { server 127.0.0.1:1; state b.state; }\nserver { location / { proxy_pass http://a; } } }";
        fs::write(&path, text).unwrap();
        let loaded = kp_config::load(&LoadOptions {
            path,
            prefix: folder.to_owned(),
            ..LoadOptions::default()
        });
        loaded.config.unwrap()
    }

    fn overrides(text: &str) -> Overrides {
        Overrides::from_text(&format!("kp-state 1\n{text}")).unwrap()
    }

    const BOTH: &str = "upstream a\ndown 127.0.0.1:1\nupstream b\nweight 127.0.0.1:1 3\n";

    #[test]
    fn what_was_kept_is_read_by_the_next_master() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let mut files = StateFiles::default();
        files.keep(&Overrides::default(), &config).unwrap();
        assert!(!folder.path().join("a.state").exists());
        files.keep(&overrides(BOTH), &config).unwrap();
        let mode = fs::metadata(folder.path().join("a.state"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = StateFiles::default();
        let (merged, adopted) = next.merge(&Overrides::default(), &read(&config).unwrap(), &config);
        assert_eq!((merged, adopted.len()), (overrides(BOTH), 2));
        // The same master knows better than its files, which are its own.
        let (merged, adopted) = files.merge(&overrides(""), &read(&config).unwrap(), &config);
        assert_eq!((merged, adopted.len()), (overrides(""), 0));
        files.keep(&overrides(""), &config).unwrap();
        let (merged, _) = next.merge(&Overrides::default(), &read(&config).unwrap(), &config);
        assert_eq!(merged, overrides(""));
        let names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|one| one.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 3, "nothing unfinished is left: {names:?}");
    }

    #[test]
    fn nobody_s_edit_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let mut files = StateFiles::default();
        files.keep(&overrides(BOTH), &config).unwrap();
        let (a, b) = (folder.path().join("a.state"), folder.path().join("b.state"));
        let (before, edited) = (
            fs::read_to_string(&a).unwrap(),
            "kp-state 1\nupstream b\ndown 127.0.0.1:1\n",
        );
        fs::write(&b, edited).unwrap();
        let refused = files.keep(&overrides(""), &config).unwrap_err();
        assert!(
            refused.error.contains("was changed by somebody else"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&a).unwrap(), before, "all or none");
        let (merged, adopted) = files.merge(&overrides(BOTH), &read(&config).unwrap(), &config);
        assert_eq!(
            merged,
            overrides("upstream a\ndown 127.0.0.1:1\nupstream b\ndown 127.0.0.1:1\n")
        );
        files.adopt(adopted);
        files.keep(&merged, &config).unwrap();
        assert_eq!(
            fs::read_to_string(&b).unwrap(),
            GroupOverrides::from_text(edited, "b").unwrap().to_text()
        );
        fs::remove_file(&b).unwrap();
        files.keep(&overrides(""), &config).unwrap();
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let a = folder.path().join("a.state");
        for (text, mode, why) in [
            ("server 127.0.0.1:80;\n", 0o600, "in line 1"),
            ("kp-state 1\nupstream a\nfly x\n", 0o600, "in line 3"),
            (
                "kp-state 1\nupstream b\n",
                0o600,
                "belongs to upstream \"b\"",
            ),
            (
                "kp-state 1\nupstream a\n",
                0o622,
                "can be changed by others",
            ),
        ] {
            fs::write(&a, text).unwrap();
            fs::set_permissions(&a, fs::Permissions::from_mode(mode)).unwrap();
            let complaints = read(&config).unwrap_err();
            assert_eq!(complaints.len(), 1);
            assert!(complaints[0].message.contains(why), "{complaints:?}");
            assert!(complaints[0].span.is_some());
        }
        fs::remove_file(&a).unwrap();
        fs::create_dir(&a).unwrap();
        assert!(
            read(&config).unwrap_err()[0]
                .message
                .contains("no regular file")
        );
        let mut files = StateFiles::default();
        assert!(files.keep(&overrides(BOTH), &config).is_err());
        assert!(!folder.path().join("b.state").exists(), "all or none");
    }
}
