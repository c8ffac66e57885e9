//! Log files of paths with variables that stay open (`open_log_file_cache`), as nginx keeps them.

use crate::log_file;
use kp_config::model::OpenLogFileCache;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files of one `open_log_file_cache`.
#[derive(Debug)]
pub(crate) struct OpenLogs {
    rules: OpenLogFileCache,
    files: HashMap<PathBuf, Kept>,
    /// When it was last looked which of them are not used any more.
    swept_ms: u64,
    /// How often files were used.
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    /// `None`: it was not used often enough.
    file: Option<File>,
    uses: u64,
    /// Which of all uses its last one was, and when that was.
    last_use: u64,
    used_ms: u64,
    checked_ms: u64,
}

impl OpenLogs {
    pub(crate) fn new(rules: OpenLogFileCache) -> Self {
        Self {
            rules,
            files: HashMap::new(),
            swept_ms: 0,
            uses: 0,
        }
    }

    /// Closes all.
    pub(crate) fn clear(&mut self) {
        self.files.clear();
    }

    /// Lets `write` write to the log of this name.
    pub(crate) fn with<T>(
        &mut self,
        path: &Path,
        now_ms: u64,
        write: impl FnOnce(&File) -> T,
    ) -> io::Result<T> {
        self.sweep(now_ms);
        self.uses += 1;
        let mut kept = match self.files.remove(path) {
            Some(kept) => kept,
            None => Kept {
                file: None,
                uses: 0,
                last_use: 0,
                used_ms: now_ms,
                checked_ms: now_ms,
            },
        };
        let valid_ms = self.rules.valid.as_millis() as u64;
        if now_ms.saturating_sub(kept.checked_ms) >= valid_ms {
            kept.checked_ms = now_ms;
            kept.file = kept.file.take().filter(|file| is_still(file, path));
        }
        // One that cannot be opened takes nobody's place.
        let file = match kept.file.take() {
            Some(file) => file,
            None => log_file::open(path)?,
        };
        let done = write(&file);
        kept.uses += 1;
        kept.last_use = self.uses;
        kept.used_ms = now_ms;
        if kept.uses >= self.rules.min_uses {
            kept.file = Some(file);
        }
        self.make_room();
        self.files.insert(path.to_owned(), kept);
        Ok(done)
    }

    /// Forgets, once a second at most, what has not been used for `inactive`.
    fn sweep(&mut self, now_ms: u64) {
        if now_ms < self.swept_ms.saturating_add(1000) {
            return;
        }
        self.swept_ms = now_ms;
        let inactive_ms = self.rules.inactive.as_millis() as u64;
        self.files
            .retain(|_, kept| now_ms.saturating_sub(kept.used_ms) <= inactive_ms);
    }

    /// Forgets the one that was used least recently if there are as many as there may be.
    fn make_room(&mut self) {
        if self.files.len() < self.rules.max {
            return;
        }
        let oldest = self.files.iter().min_by_key(|(_, kept)| kept.last_use);
        if let Some(path) = oldest.map(|(path, _)| path.clone()) {
            self.files.remove(&path);
        }
    }
}

/// Whether the name still means this file.
fn is_still(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), path.metadata()) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    fn logs(max: usize, min_uses: u64) -> OpenLogs {
        OpenLogs::new(OpenLogFileCache {
            max,
            inactive: Duration::from_secs(20),
            min_uses,
            valid: Duration::from_secs(60),
        })
    }

    fn add(logs: &mut OpenLogs, path: &Path, now_ms: u64) -> bool {
        logs.with(path, now_ms, |mut file| file.write_all(b"x\n").is_ok())
            .unwrap_or(false)
    }

    fn lines(path: &Path) -> usize {
        std::fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn the_files_used_last_and_often_enough_stay_open() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("dir");
        let moved = folder.path().join("moved");
        std::fs::create_dir(&inner).unwrap();
        let mut logs = logs(3, 2);
        let uses = ["lru", "lru", "once", "first", "first", "second", "second"];
        for name in uses {
            assert!(add(&mut logs, &inner.join(name), 1));
        }
        std::fs::rename(&inner, &moved).unwrap();
        for (name, open) in [
            ("first", true),
            ("second", true),
            ("once", false),
            ("lru", false),
        ] {
            assert_eq!(add(&mut logs, &inner.join(name), 10), open, "{name}");
        }
        let counts = ["lru", "once", "first", "second"].map(|name| lines(&moved.join(name)));
        assert_eq!(counts, [2, 1, 3, 3]);
    }

    #[test]
    fn a_moved_file_is_noticed_and_an_unused_one_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("a"), folder.path().join("b"));
        let mut logs = logs(3, 1);
        assert!(add(&mut logs, &path, 0));
        std::fs::rename(&path, &moved).unwrap();
        for now_ms in [10_000, 20_000, 30_000, 40_000, 50_000, 59_999] {
            assert!(add(&mut logs, &path, now_ms));
        }
        assert_eq!(lines(&moved), 7);
        assert!(add(&mut logs, &path, 60_000));
        assert_eq!((lines(&moved), lines(&path)), (7, 1));
        assert!(add(&mut logs, &folder.path().join("c"), 80_001));
        assert_eq!(logs.files.len(), 1, "a was not used for 20 s");
        logs.clear();
        assert!(logs.files.is_empty());
    }
}
