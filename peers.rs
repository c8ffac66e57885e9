
#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;
    use std::collections::HashSet;

    #[test]
    fn an_identity_has_one_row() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let keys: Vec<Key> = (0..500u32).map(|n| Key::of(&[b"u", b"z", format!("10.0.0.1:{n}").as_bytes()])).collect();
        for (index, key) in keys.iter().enumerate() {
            shm.peers().claim(*key, process).advance(index as i64);
        }
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(shm.peers().claim(*key, process).current_weight(), index as i64);
        }
        assert_eq!((shm.peers().used(), shm.peers().overflows()), (500, 0));
    }

    #[test]
    fn borders_of_parts_count() {
        let keys = [&[&b"ab"[..], b"c"][..], &[b"a", b"bc"], &[b"abc"], &[b"", b"abc"], &[b"abc", b""]];
        assert_eq!(keys.iter().map(|parts| Key::of(parts)).collect::<HashSet<_>>().len(), keys.len());
    }

    #[test]
    fn racing_claims_agree() {
        let shm = Shm::private().unwrap();
        let rows: Vec<Row> = (0..4).map(|slot| shm.scoreboard().claim(1, slot)).collect();
        std::thread::scope(|scope| {
            for row in &rows {
                scope.spawn(|| {
                    for n in 0..2000u32 {
                        shm.peers().claim(Key::of(&[&n.to_le_bytes()]), *row).advance(1);
                    }
                });
            }
        });
        for n in 0..2000u32 {
            assert_eq!(shm.peers().claim(Key::of(&[&n.to_le_bytes()]), rows[0]).current_weight(), 4, "peer {n}");
        }
    }

    #[test]
    fn a_full_table_gives_private_rows_and_says_so() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        for n in 0..crate::SMALL.peers as u32 {
            assert!(shm.peers().claim(Key::of(&[&n.to_le_bytes()]), process).is_shared());
        }
        let key = Key::of(&[b"one too many"]);
        assert!(!shm.peers().claim(key, process).is_shared());
        assert!(shm.peers().claim(Key::of(&[&7u32.to_le_bytes()]), process).is_shared());
        assert_eq!(shm.peers().overflows(), 1);
    }

    #[test]
    fn a_process_without_a_row_shares_nothing() {
        let shm = Shm::private().unwrap();
        assert!(!shm.peers().claim(Key::of(&[b"u"]), Row::PRIVATE).is_shared());
        assert_eq!(shm.peers().overflows(), 1);
    }

    #[test]
    fn the_dead_give_back_what_they_held_once() {
        let shm = Shm::private().unwrap();
        let key = Key::of(&[b"u"]);
        let (dead, alive) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let (its, ours) = (shm.peers().claim(key, dead), shm.peers().claim(key, alive));
        assert!(its.admit(3) && its.admit(3) && ours.admit(3) && !ours.admit(3));
        shm.reap(dead);
        assert_eq!(ours.in_flight(), 1);
        shm.reap(dead);
        assert_eq!(ours.in_flight(), 1);
        ours.release();
        assert_eq!(ours.in_flight(), 0);
    }

    #[test]
    fn max_conns_is_never_exceeded() {
        let shm = Shm::private().unwrap();
        let key = Key::of(&[b"u"]);
        let most = AtomicU64::new(0);
        let held = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for slot in 0..4 {
                let peer = shm.peers().claim(key, shm.scoreboard().claim(1, slot));
                let (most, held) = (&most, &held);
                scope.spawn(move || {
                    for _ in 0..50_000 {
                        if peer.admit(2) {
                            most.fetch_max(held.fetch_add(1, Relaxed) + 1, Relaxed);
                            held.fetch_sub(1, Relaxed);
                            peer.release();
                        }
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.load(Relaxed)), "{most:?}");
        assert_eq!(shm.peers().claim(key, shm.scoreboard().claim(1, 9)).in_flight(), 0);
    }

    #[test]
    fn health_is_one_word() {
        let row = PeerRow::private();
        let old = row.health();
        assert_eq!(old, Health { fails: 0, on_trial: false, checked_ms: 0 });
        let new = Health { fails: u16::MAX, on_trial: true, checked_ms: (1 << 47) - 1 };
        assert!(row.replace_health(old, new));
        assert_eq!(row.health(), new);
        assert!(!row.replace_health(old, new));
        let later = Health { fails: 1, on_trial: false, checked_ms: 5 };
        assert!(row.replace_health(new, later));
        assert_eq!(row.health(), later);
    }
}
