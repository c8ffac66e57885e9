//! Log files: the master opens and reopens them, the workers write to what they are handed (they may have no right to
//! open anything).

use crate::report;
use kp_config::model::{ErrorLog, Level, LogFileId, LogTarget};
use kp_config::{Config, Diagnostic, Span};
use kp_sys::process::Identity;
use kp_sys::socket::{FDS_MAX, send_fds};
use kp_worker::{error_log, log_file, message};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Opens every log file of a configuration, in its order, or tells of each that cannot be opened.
pub(crate) fn open(config: &Config) -> Result<Vec<File>, Vec<Diagnostic>> {
    let mut complaints = Vec::new();
    let mut files = Vec::with_capacity(config.log_files.len());
    for (path, place) in config.log_files.iter().zip(&config.log_places) {
        match log_file::open(path) {
            Ok(file) => files.push(file),
            Err(error) => complaints.push(complaint(path, *place, &error)),
        }
    }
    if complaints.is_empty() {
        Ok(files)
    } else {
        Err(complaints)
    }
}

fn complaint(path: &Path, place: Option<Span>, error: &io::Error) -> Diagnostic {
    let text = report::failed("open()", path, error);
    let folder = path.parent().unwrap_or(path).display();
    let advice = match error.kind() {
        io::ErrorKind::NotFound => format!("make its directory: mkdir -p {folder}"),
        io::ErrorKind::PermissionDenied => {
            format!("the user who starts kp must be allowed to write in {folder}")
        }
        _ => String::from("name a file that can be written"),
    };
    match place {
        Some(span) => Diagnostic::error(span, text).hint(advice),
        None => Diagnostic::system(text).hint(format!(
            "{advice}; or name another file than this built-in one with \"error_log\" and \"access_log\""
        )),
    }
}

/// Opens them again after somebody moved them away (USR1). One that cannot be opened keeps its old file; the complaints
/// are returned. Standard streams stay as they are.
///
/// The files are not given to the workers' user, as nginx does: the workers are handed descriptors. Root could be tricked
/// by a link to give something else away, and could not open a file of another user anew in a sticky directory.
pub(crate) fn reopen(paths: &[PathBuf], files: &mut [File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, file) in paths.iter().zip(files) {
        if log_file::is_stream(path) {
            continue;
        }
        match open_one(path) {
            Ok(opened) => *file = opened,
            Err(complaint) => complaints.push(complaint),
        }
    }
    complaints
}

/// Makes them the files behind `log`.
pub(crate) fn install(config: &Config, files: &[File]) -> io::Result<()> {
    error_log::install(&config.main.error_log, &config.syslogs, duplicates(files)?);
    Ok(())
}

/// Lets `log` write to a log that no configuration has named (yet); says so where that is impossible, as nginx.
pub(crate) fn install_early(path: &Path) {
    match open_one(path) {
        Ok(file) => {
            let target = ErrorLog {
                target: LogTarget::File(LogFileId(0)),
                level: Level::Notice,
                json: false,
            };
            error_log::install(&[target], &[], vec![file.into()]);
        }
        Err(complaint) => report::say(format_args!(
            "[alert] could not open error log file: {complaint}"
        )),
    }
}

/// Further descriptors of the same files, closed on exec.
pub(crate) fn duplicates(files: &[File]) -> io::Result<Vec<OwnedFd>> {
    files
        .iter()
        .map(|file| file.as_fd().try_clone_to_owned())
        .collect()
}

/// Sends the files to a worker, in datagrams that the kernel takes; returns how many these were.
pub(crate) fn send(channel: &impl AsFd, files: &[File]) -> io::Result<u64> {
    let mut sent = 0;
    for (batch, number) in files.chunks(FDS_MAX).zip(0_usize..) {
        let first = u16::try_from(number * FDS_MAX).map_err(io::Error::other)?;
        let [high, low] = first.to_be_bytes();
        let fds: Vec<BorrowedFd<'_>> = batch.iter().map(File::as_fd).collect();
        send_fds(channel, &[message::LOGS, high, low], &fds)?;
        sent += 1;
    }
    Ok(sent)
}

/// Makes the directories that must exist before serving, for the workers alone.
pub(crate) fn make_temporary(
    paths: &[PathBuf],
    identity: Option<&Identity>,
) -> Result<(), Vec<Diagnostic>> {
    let complaints: Vec<_> = paths
        .iter()
        .filter_map(|path| make_one(path, identity).err())
        .map(|text| {
            Diagnostic::system(text).hint(
                "name a directory that can be made with \"client_body_temp_path\" or \"proxy_temp_path\", or another prefix with -p",
            )
        })
        .collect();
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(complaints)
    }
}

fn make_one(path: &Path, identity: Option<&Identity>) -> Result<(), String> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| report::failed("mkdir()", path, &error))?;
    match identity {
        Some(identity) if fs::metadata(path).is_ok_and(|found| found.uid() != identity.uid()) => {
            identity
                .take_ownership(path)
                .map_err(|error| report::failed("chown()", path, &error))
        }
        _ => Ok(()),
    }
}

fn open_one(path: &Path) -> Result<File, String> {
    log_file::open(path).map_err(|error| report::failed("open()", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_sys::socket::{recv_fds, seqpacket_pair};
    use std::io::{Read, Write};

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn opened(paths: &[PathBuf]) -> Vec<File> {
        paths
            .iter()
            .map(|path| log_file::open(path).unwrap())
            .collect()
    }

    #[test]
    fn each_log_that_cannot_be_opened_is_told_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kp.conf");
        let text = "error_log no/e.log;\nevents {}\nhttp {\n  access_log no/a.log;\n  server { access_log /; listen 1; }\n}\n";
        fs::write(&path, text).unwrap();
        let loaded = kp_config::load(&kp_config::LoadOptions {
            path,
            prefix: folder.path().to_owned(),
            ..kp_config::LoadOptions::default()
        });
        let complaints = open(&loaded.config.unwrap()).unwrap_err();
        let shown = kp_config::render(&complaints, &loaded.sources);
        for part in [
            "kp.conf:1:11\n",
            "kp.conf:4:14\n",
            "kp.conf:5:23\n",
            "(21: Is a directory)",
            "hint: make its directory: mkdir -p",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        let built_in = complaint(
            Path::new("/no/x"),
            None,
            &io::Error::from(io::ErrorKind::NotFound),
        );
        assert!(built_in.hint.unwrap().contains("\"error_log\""));
    }

    #[test]
    fn reopened_files_are_new_ones_and_what_cannot_be_opened_stays() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("sub");
        fs::create_dir(&gone).unwrap();
        let paths = [folder.path().join("a.log"), gone.join("b.log")];
        let mut files = opened(&paths);
        writeln!(files[0], "one").unwrap();
        let moved = folder.path().join("a.old");
        fs::rename(&paths[0], &moved).unwrap();
        fs::rename(&gone, folder.path().join("elsewhere")).unwrap();
        let complaints = reopen(&paths, &mut files);
        let shown = paths[1].display();
        assert_eq!(
            complaints,
            [format!(
                "open() \"{shown}\" failed (2: No such file or directory)"
            )]
        );
        writeln!(files[0], "two").unwrap();
        writeln!(files[1], "three").unwrap();
        assert_eq!(
            (read(&moved), read(&paths[0])),
            ("one\n".into(), "two\n".into())
        );
        assert_eq!(read(&folder.path().join("elsewhere/b.log")), "three\n");
    }

    #[test]
    fn many_files_travel_in_numbered_batches() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..FDS_MAX + 1)
            .map(|number| folder.path().join(number.to_string()))
            .collect();
        let files = opened(&paths);
        let (near, far) = seqpacket_pair().unwrap();
        assert_eq!(send(&near, &files).unwrap(), 2);
        let (text, fds) = recv_fds(&far).unwrap().unwrap();
        assert_eq!(
            (text.as_slice(), fds.len()),
            ([message::LOGS, 0, 0].as_slice(), FDS_MAX)
        );
        let (text, fds) = recv_fds(&far).unwrap().unwrap();
        assert_eq!(
            (text.as_slice(), fds.len()),
            ([message::LOGS, 0, 200].as_slice(), 1)
        );
        File::from(fds.into_iter().next().unwrap())
            .write_all(b"last")
            .unwrap();
        let mut last = String::new();
        File::open(&paths[FDS_MAX])
            .unwrap()
            .read_to_string(&mut last)
            .unwrap();
        assert_eq!(last, "last");
    }

    #[test]
    fn temporary_directories_are_for_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        for _ in 0..2 {
            make_temporary(std::slice::from_ref(&path), None).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        }
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let complaints = make_temporary(&[file.join("x"), file.join("y")], None).unwrap_err();
        assert_eq!(complaints.len(), 2);
        for complaint in complaints.iter().map(|one| one.message.as_str()) {
            assert!(
                complaint.starts_with("mkdir() ") && complaint.ends_with("(20: Not a directory)"),
                "{complaint}"
            );
        }
    }
}
