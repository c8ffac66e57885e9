
#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn only_a_lasting_difference_is_corrected() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let peer = shm.peers().claim(Key::of(&[b"u"]), process);
        let mut repair = Repair::default();
        assert!(peer.admit(0));
        assert_eq!((repair.sweep(&shm), repair.is_suspicious()), (0, false));

        // The state a kill leaves behind: the total counts one more than anybody holds.
        shm.peers().correct(0, -1);
        for _ in 1..AGREEMENTS {
            assert_eq!(repair.sweep(&shm), 0);
        }
        shm.peers().correct(0, -1);
        assert_eq!(repair.sweep(&shm), 0, "another difference starts the count anew");
        for _ in 2..AGREEMENTS {
            assert_eq!(repair.sweep(&shm), 0);
        }
        assert_eq!((peer.in_flight(), repair.is_suspicious()), (3, true));
        assert_eq!((repair.sweep(&shm), peer.in_flight(), repair.is_suspicious()), (1, 1, false));
    }
}
