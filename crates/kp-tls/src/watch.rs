//! Certificates that change while kp runs (`ssl_certificate_reload`): which files to look at, and how a pair that was
//! read anew, with the master's rights, reaches the workers.
//!
//! The master loads and checks; what it sends is the pair with its key opened, so it belongs into memory that only the
//! two can see. A pair that is broken is told and changes nothing.

use crate::load::{PairFiles, Tls, pair_files};
use crate::pair::Pair;
use crate::pem;
use kp_config::model::{Config, ServerId};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// A pair of files that virtual hosts want to be looked at.
#[derive(Debug)]
pub struct WatchedPair {
    files: PairFiles,
    /// Who uses it, and the place among its pairs.
    users: Vec<(ServerId, u32)>,
}

/// A pair that was read anew, for these virtual hosts.
#[derive(Debug, Clone)]
pub struct PairUpdate {
    users: Vec<(ServerId, u32)>,
    certificate: Vec<u8>,
    key: Vec<u8>,
    staple: Vec<u8>,
}

/// The pairs that are to be looked at, each once.
pub fn watched_pairs(config: &Config) -> Vec<WatchedPair> {
    let mut places: HashMap<PairFiles, usize> = HashMap::new();
    let mut watched: Vec<WatchedPair> = Vec::new();
    for (host, id) in config.http.servers.iter().zip(0..) {
        let Some(settings) = host.tls.as_ref().filter(|one| one.certificate_reload) else {
            continue;
        };
        for (files, index) in pair_files(settings).zip(0..) {
            let place = *places.entry(files).or_insert_with_key(|files| {
                watched.push(WatchedPair {
                    files: files.clone(),
                    users: Vec::new(),
                });
                watched.len() - 1
            });
            if let Some(pair) = watched.get_mut(place) {
                pair.users.push((ServerId(id), index));
            }
        }
    }
    watched
}

impl WatchedPair {
    /// The files whose change means that the pair is to be loaded.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let files = &self.files;
        let optional = files.passwords.iter().chain(&files.staple);
        [&files.certificate, &files.key]
            .into_iter()
            .chain(optional)
            .map(PathBuf::as_path)
    }

    /// The certificate's file, for messages.
    pub fn certificate(&self) -> &Path {
        &self.files.certificate
    }

    /// Reads and checks the pair as it is now.
    ///
    /// # Errors
    ///
    /// What is wrong, for the error log; the pair in use stays.
    pub fn load(
        &self,
        read: &mut dyn FnMut(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<PairUpdate, String> {
        let mut content = |path: &Path| {
            read(path).map_err(|error| {
                format!(
                    "\"{}\": {}",
                    path.display(),
                    crate::load::system_words(&error)
                )
            })
        };
        let certificate = content(&self.files.certificate)?;
        let key = content(&self.files.key)?;
        let passwords = match &self.files.passwords {
            Some(path) => pem::passwords(&content(path)?),
            None => Vec::new(),
        };
        let staple = match &self.files.staple {
            Some(path) => content(path)?,
            None => Vec::new(),
        };
        let told = |error: crate::PairError| error.told(&self.files.certificate, &self.files.key);
        let key = pem::opened(&key, &passwords).map_err(|why| told(crate::PairError::Key(why)))?;
        let update = PairUpdate {
            users: self.users.clone(),
            certificate,
            key,
            staple,
        };
        update.pair().map_err(told)?;
        Ok(update)
    }
}

impl PairUpdate {
    /// Several of them, for the way to the workers.
    pub fn encode_all<'a>(updates: impl IntoIterator<Item = &'a Self>) -> Vec<u8> {
        let mut out = Vec::new();
        for update in updates {
            let bytes = update.encode();
            out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        out
    }

    /// `None` for what [`PairUpdate::encode_all`] did not make.
    pub fn decode_all(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut updates = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_first_chunk::<8>()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (update, rest) = rest.split_at_checked(length)?;
            updates.push(Self::decode(update)?);
            bytes = rest;
        }
        Some(updates)
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for part in [&self.certificate, &self.key, &self.staple] {
            out.extend_from_slice(&(part.len() as u64).to_le_bytes());
            out.extend_from_slice(part);
        }
        for (server, index) in &self.users {
            out.extend_from_slice(&server.0.to_le_bytes());
            out.extend_from_slice(&index.to_le_bytes());
        }
        out
    }

    /// `None` for what [`PairUpdate::encode`] did not make.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut part = || {
            let (length, after) = rest.split_first_chunk::<8>()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (part, after) = after.split_at_checked(length)?;
            rest = after;
            Some(part.to_vec())
        };
        let (certificate, key, staple) = (part()?, part()?, part()?);
        let (words, extra) = rest.as_chunks::<4>();
        let (pairs, odd) = words.as_chunks::<2>();
        if !extra.is_empty() || !odd.is_empty() {
            return None;
        }
        let word = |bytes: [u8; 4]| u32::from_le_bytes(bytes);
        Some(Self {
            users: pairs
                .iter()
                .map(|[server, index]| (ServerId(word(*server)), word(*index)))
                .collect(),
            certificate,
            key,
            staple,
        })
    }

    fn pair(&self) -> Result<Pair, crate::PairError> {
        let staple = (!self.staple.is_empty()).then(|| self.staple.clone());
        Pair::from_pem(&self.certificate, &self.key, &[], staple)
    }
}

impl Tls {
    /// Lets the virtual hosts of `update` use its pair from the next handshake on. The master does it, too, for the workers
    /// it will fork.
    ///
    /// # Errors
    ///
    /// The pair is not one; nothing changed.
    pub fn apply(&self, update: &PairUpdate) -> Result<(), crate::PairError> {
        let pair = update.pair()?;
        for (server, index) in &update.users {
            let Some(server) = self.server(*server) else {
                continue;
            };
            let mut pairs = server.pairs().to_vec();
            if let Some(place) = pairs.get_mut(*index as usize) {
                *place = pair.clone();
                server.replace(pairs);
            }
        }
        Ok(())
    }
}
