//! Certificates whose names hold variables: loaded when a handshake wants them, and kept for a while. Reading files is
//! the caller's, in a place that may wait; what is kept and for how long is decided here.

use crate::pair::{Pair, PairError};
use kp_config::model::CertificateCache;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// A certificate or a key, its variables evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A file.
    Path(PathBuf),
    /// The PEM text itself (`data:`).
    Text(Vec<u8>),
}

/// Which certificate with which key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PairName {
    /// The certificate with its chain.
    pub certificate: Source,
    /// Its key.
    pub key: Source,
}

impl PairName {
    /// Reads and checks the pair.
    ///
    /// # Errors
    ///
    /// What is wrong, for the error log, in nginx's words.
    pub fn load(
        &self,
        passwords: &[Vec<u8>],
        read: &mut dyn FnMut(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Pair, String> {
        let (certificate_path, key_path) = (self.certificate.path(), self.key.path());
        let certificate = self.certificate.content(read);
        let certificate = certificate.map_err(PairError::Certificate);
        let key = self.key.content(read).map_err(PairError::Key);
        certificate
            .and_then(|certificate| Ok((certificate, key?)))
            .and_then(|(certificate, key)| Pair::from_pem(&certificate, &key, passwords, None))
            .map_err(|error| error.told(certificate_path, key_path))
    }
}

impl Source {
    fn path(&self) -> &Path {
        match self {
            Self::Path(path) => path,
            // The text may be a secret.
            Self::Text(_) => Path::new("data:"),
        }
    }

    fn content(
        &self,
        read: &mut dyn FnMut(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Vec<u8>, String> {
        match self {
            Self::Path(path) => read(path).map_err(|error| crate::load::system_words(&error)),
            Self::Text(text) => Ok(text.clone()),
        }
    }
}

/// Pairs that were loaded lately.
#[derive(Debug)]
pub struct PairCache {
    bounds: CertificateCache,
    entries: HashMap<PairName, Entry>,
    turns: u64,
}

#[derive(Debug)]
struct Entry {
    pair: Pair,
    loaded_unix_secs: u64,
    used_unix_secs: u64,
    /// Orders uses within a second.
    turn: u64,
}

impl PairCache {
    /// An empty one.
    pub fn new(bounds: CertificateCache) -> Self {
        Self {
            bounds,
            entries: HashMap::new(),
            turns: 0,
        }
    }

    /// The pair, if it is there and may still be used.
    pub fn find(&mut self, name: &PairName, now_unix_secs: u64) -> Option<Pair> {
        let turn = self.next_turn();
        let valid = self.bounds.valid.as_secs();
        let entry = self.entries.get_mut(name)?;
        if now_unix_secs.saturating_sub(entry.loaded_unix_secs) > valid {
            self.entries.remove(name);
            return None;
        }
        entry.used_unix_secs = now_unix_secs;
        entry.turn = turn;
        Some(entry.pair.clone())
    }

    /// Keeps a pair; those that were not used for long go, and the least lately used one if there are too many. As in nginx
    /// a key that is encrypted in its file is not kept in the clear here.
    pub fn insert(&mut self, name: PairName, pair: Pair, now_unix_secs: u64) {
        if pair.was_encrypted {
            return;
        }
        let inactive = self.bounds.inactive.as_secs();
        self.entries
            .retain(|_, entry| now_unix_secs.saturating_sub(entry.used_unix_secs) <= inactive);
        // In nginx's count a certificate and its key are two.
        let pairs_max = self.bounds.max.div_ceil(2);
        if self.entries.len() >= pairs_max && !self.entries.contains_key(&name) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.turn);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                return;
            };
            self.entries.remove(&oldest);
        }
        let turn = self.next_turn();
        let entry = Entry {
            pair,
            loaded_unix_secs: now_unix_secs,
            used_unix_secs: now_unix_secs,
            turn,
        };
        self.entries.insert(name, entry);
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn made(name: &str) -> Pair {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Pair::from_pem(
            certificate.as_bytes(),
            key.serialize_pem().as_bytes(),
            &[],
            None,
        )
        .unwrap()
    }

    fn name(name: &str) -> PairName {
        PairName {
            certificate: Source::Path(format!("/{name}.crt").into()),
            key: Source::Path(format!("/{name}.key").into()),
        }
    }

    fn cache() -> PairCache {
        PairCache::new(CertificateCache {
            max: 4,
            inactive: Duration::from_secs(10),
            valid: Duration::from_secs(60),
        })
    }

    #[test]
    fn the_least_lately_used_one_gives_way() {
        let mut cache = cache();
        let pair = made("x");
        cache.insert(name("a"), pair.clone(), 1);
        cache.insert(name("b"), pair.clone(), 1);
        assert!(cache.find(&name("a"), 1).is_some());
        cache.insert(name("c"), pair, 1);
        assert!(cache.find(&name("b"), 1).is_none());
        assert!(cache.find(&name("a"), 1).is_some());
        assert!(cache.find(&name("c"), 1).is_some());
    }

    #[test]
    fn a_pair_is_loaded_anew_after_its_time_and_forgotten_when_idle() {
        let mut cache = cache();
        let pair = made("x");
        cache.insert(name("a"), pair.clone(), 100);
        for now in (105..=160).step_by(5) {
            assert!(cache.find(&name("a"), now).is_some(), "{now}");
        }
        assert!(cache.find(&name("a"), 161).is_none());
        cache.insert(name("a"), pair.clone(), 200);
        cache.insert(name("b"), pair, 211);
        assert!(cache.find(&name("a"), 211).is_none());
    }

    #[test]
    fn loading_tells_what_is_wrong() {
        let mut nothing = |_: &Path| Err(io::Error::from_raw_os_error(2));
        assert_eq!(
            name("a").load(&[], &mut nothing).unwrap_err(),
            "cannot load certificate \"/a.crt\": open() failed (2: No such file or directory)"
        );
        let text = PairName {
            certificate: Source::Text(b"x".to_vec()),
            key: Source::Text(b"y".to_vec()),
        };
        assert_eq!(
            text.load(&[], &mut nothing).unwrap_err(),
            "cannot load certificate \"data:\": no start line: expecting a CERTIFICATE"
        );
    }
}
