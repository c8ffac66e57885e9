//! OpenSSL's cipher strings (`ssl_ciphers`), reduced to the suites kp speaks.
//!
//! The rules are those of ciphers(1): words are applied from left to right; `:`, `,`, `;` and blanks separate them; `!`
//! removes for good, `-` removes, `+` moves to the end, `A+B` is what is in both. Which suites a word means is a table of
//! the properties of our suites; a word that selects none of them is told to the caller, unless it only takes away.

use super::Selection;
use crate::model::CipherSuite;

/// A word and the suites of TLS 1.2 it means, as a set.
type Alias = (&'static str, Set);

/// A set of TLS 1.2 suites: one bit for each entry of [`CipherSuite::TLS12`].
type Set = u8;

const NONE: Set = 0;
const EVERY: Set = 0b11_1111;
const ECDSA: Set = 0b01_0101;
const RSA: Set = 0b10_1010;
const AES256: Set = 0b00_0011;
const CHACHA20: Set = 0b00_1100;
const AES128: Set = 0b11_0000;
const AES: Set = AES128 | AES256;

/// Words for more than one suite. Those that mean only suites kp does not have are not in here, except where they say
/// something about every suite.
const ALIASES: [Alias; 20] = [
    ("ALL", EVERY),
    ("COMPLEMENTOFALL", NONE),
    ("DEFAULT", EVERY),
    ("COMPLEMENTOFDEFAULT", NONE),
    ("HIGH", EVERY),
    ("FIPS", AES),
    ("TLSv1.2", EVERY),
    ("ECDH", EVERY),
    ("kECDHE", EVERY),
    ("kEECDH", EVERY),
    ("EECDH", EVERY),
    ("ECDHE", EVERY),
    ("aECDSA", ECDSA),
    ("ECDSA", ECDSA),
    ("aRSA", RSA),
    ("AES", AES),
    ("AESGCM", AES),
    ("AES128", AES128),
    ("AES256", AES256),
    ("CHACHA20", CHACHA20),
];

/// Names of the IANA registry that OpenSSL takes, too.
const STANDARD: [(&str, CipherSuite); 6] = [
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::EcdheEcdsaAes256GcmSha384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::EcdheRsaAes256GcmSha384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::EcdheEcdsaChacha20Poly1305,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::EcdheRsaChacha20Poly1305,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::EcdheEcdsaAes128GcmSha256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::EcdheRsaAes128GcmSha256,
    ),
];

/// What a word does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Add,
    /// `+`
    Last,
    /// `-`
    Remove,
    /// `!`
    Kill,
}

/// Reads a cipher string: the suites of TLS 1.2 that are left of it.
pub(crate) fn cipher_string(text: &str) -> Selection<CipherSuite> {
    let mut list = List::default();
    let mut left_out: Vec<String> = Vec::new();
    // A command may touch the word in front of it: `DEFAULT@SECLEVEL=1`.
    let text = text.replace('@', ":@");
    for word in text.split([':', ',', ';', ' ']) {
        let (operation, name) = match word.split_at_checked(1) {
            None => continue,
            Some(("@", command)) => {
                // `@SECLEVEL=n` asks for no more than every suite here gives.
                if command == "STRENGTH" {
                    list.sort();
                }
                continue;
            }
            Some(("!", name)) => (Operation::Kill, name),
            Some(("-", name)) => (Operation::Remove, name),
            Some(("+", name)) => (Operation::Last, name),
            Some(_) => (Operation::Add, word),
        };
        match meaning(name) {
            Some(set) => list.apply(operation, set),
            None if operation == Operation::Add && !left_out.iter().any(|known| known == name) => {
                left_out.push(name.to_owned());
            }
            None => {}
        }
    }
    Selection {
        chosen: list.suites,
        left_out,
    }
}

/// The suites while the words are applied.
#[derive(Debug, Default)]
struct List {
    suites: Vec<CipherSuite>,
    /// Those that cannot come back.
    killed: Set,
}

impl List {
    fn apply(&mut self, operation: Operation, set: Set) {
        match operation {
            Operation::Add => {
                for suite in members(set & !self.killed) {
                    if !self.suites.contains(&suite) {
                        self.suites.push(suite);
                    }
                }
            }
            // Stable: the others keep their order, and so do the moved ones.
            Operation::Last => self.suites.sort_by_key(|suite| is_in(*suite, set)),
            Operation::Remove => self.suites.retain(|suite| !is_in(*suite, set)),
            Operation::Kill => {
                self.killed |= set;
                self.suites.retain(|suite| !is_in(*suite, set));
            }
        }
    }

    /// The longest keys first.
    fn sort(&mut self) {
        self.suites.sort_by_key(|suite| is_in(*suite, AES128));
    }
}

/// Reads the suites of TLS 1.3 (`Ciphersuites`), which are names only.
pub(crate) fn tls13_suites(text: &str) -> Selection<CipherSuite> {
    let mut selection = Selection::default();
    for word in text.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let known = CipherSuite::TLS13
            .into_iter()
            .find(|suite| suite.name() == word);
        match known {
            Some(suite) if !selection.chosen.contains(&suite) => selection.chosen.push(suite),
            Some(_) => {}
            None => selection.left_out.push(word.to_owned()),
        }
    }
    selection
}

/// What a word means: nothing bad where it is empty (a name of TLS 1.3, whose suites are not this string's business, or a
/// word for suites nobody should miss); `None`: it asks for something kp does not have.
fn meaning(name: &str) -> Option<Set> {
    if CipherSuite::TLS13.iter().any(|suite| suite.name() == name) {
        return Some(NONE);
    }
    let mut set = EVERY;
    for part in name.split('+') {
        set &= single(part)?;
    }
    // Of properties that exist, together no suite has them.
    (set != NONE || !name.contains('+')).then_some(set)
}

fn single(name: &str) -> Option<Set> {
    if let Some((_, set)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        return Some(*set);
    }
    let named = CipherSuite::TLS12
        .into_iter()
        .find(|suite| suite.name() == name);
    let standard = || {
        let mut names = STANDARD.iter();
        names
            .find(|(known, _)| *known == name)
            .map(|(_, suite)| *suite)
    };
    named.or_else(standard).map(bit)
}

fn bit(suite: CipherSuite) -> Set {
    let position = CipherSuite::TLS12.iter().position(|one| *one == suite);
    position.map_or(NONE, |position| 1 << position)
}

fn is_in(suite: CipherSuite, set: Set) -> bool {
    bit(suite) & set != NONE
}

fn members(set: Set) -> impl Iterator<Item = CipherSuite> {
    CipherSuite::TLS12
        .into_iter()
        .filter(move |suite| is_in(*suite, set))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suites as letters: E or R for the signature, then 2 (AES256), c (ChaCha20) or 1 (AES128).
    fn left(text: &str) -> String {
        let short = |suite: &CipherSuite| {
            let auth = if is_in(*suite, ECDSA) { 'E' } else { 'R' };
            let cipher = match *suite {
                suite if is_in(suite, AES256) => '2',
                suite if is_in(suite, CHACHA20) => 'c',
                _ => '1',
            };
            format!("{auth}{cipher}")
        };
        let chosen = cipher_string(text).chosen;
        chosen.iter().map(short).collect::<Vec<_>>().join(" ")
    }

    const ALL: &str = "E2 R2 Ec Rc E1 R1";

    /// Strings as they stand in configurations everywhere; what is left of them is what `openssl ciphers` lists of ours.
    #[test]
    fn strings_from_the_wild() {
        let cases = [
            // nginx's own default.
            ("HIGH:!aNULL:!MD5", ALL),
            ("DEFAULT", ALL),
            ("ALL:!ADH:!EXPORT:!LOW:!aNULL:!eNULL:!SSLv2:+HIGH", ALL),
            // Mozilla, intermediate, of several years.
            (
                "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:DHE-RSA-CHACHA20-POLY1305",
                "E1 R1 E2 R2 Ec Rc",
            ),
            (
                "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:DHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-SHA:AES128-SHA:DES-CBC3-SHA:!DSS",
                "Ec Rc E1 R1 E2 R2",
            ),
            ("EECDH+AESGCM:EDH+AESGCM", "E2 R2 E1 R1"),
            ("EECDH+AESGCM:EECDH+CHACHA20", "E2 R2 E1 R1 Ec Rc"),
            ("ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL", "E2 R2 E1 R1 Ec Rc"),
            ("AES256+EECDH:AES256+EDH:!aNULL", "E2 R2"),
            (
                "EECDH+CHACHA20:EECDH+AES128:RSA+AES128:EECDH+AES256:RSA+AES256:!MD5",
                "Ec Rc E1 R1 E2 R2",
            ),
            (
                "EECDH+ECDSA+AESGCM EECDH+aRSA+AESGCM EECDH !aNULL !RC4",
                "E2 E1 R2 R1 Ec Rc",
            ),
            (
                "kEECDH+ECDSA+AES128 kEECDH+ECDSA+AES256 kEECDH+AES128 kEECDH+AES256 +SHA !aNULL",
                "E1 E2 R1 R2",
            ),
            ("HIGH:!kEDH:!aNULL:!RSA", ALL),
            ("TLSv1.2:-AES128", "E2 R2 Ec Rc"),
            ("ALL:+AES256", "Ec Rc E1 R1 E2 R2"),
            ("AES128:AES256:@STRENGTH", "E2 R2 E1 R1"),
            ("DEFAULT@SECLEVEL=1", ALL),
            ("DEFAULT:@SECLEVEL=1", ALL),
            ("HIGH:!CHACHA20", "E2 R2 E1 R1"),
            ("HIGH:!aRSA@STRENGTH", "E2 Ec E1"),
            ("-AES:AES", "E2 R2 E1 R1"),
            ("!AES:AES:CHACHA20", "Ec Rc"),
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "R1"),
            ("TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256", "R1"),
            ("RC4-SHA", ""),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(left(text), expected, "{text}");
        }
    }

    #[test]
    fn what_kp_lacks_is_named_once() {
        let left_out = |text: &str| cipher_string(text).left_out.join(" ");
        assert_eq!(
            left_out(
                "ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:RSA+AES128:AES128-SHA:AES128-SHA:nonsense"
            ),
            "DHE-RSA-AES128-GCM-SHA256 RSA+AES128 AES128-SHA nonsense"
        );
        assert_eq!(left_out("EECDH+AESGCM:EDH+AESGCM"), "EDH+AESGCM");
        assert_eq!(left_out("HIGH:!aNULL:!MD5:-RC4:+SHA:@STRENGTH"), "");
        assert_eq!(left_out("TLS_AES_256_GCM_SHA384:HIGH"), "");
        assert_eq!(left_out("ECDSA+aRSA"), "ECDSA+aRSA");
        assert_eq!(left_out("HIGH:MEDIUM"), "MEDIUM");
    }

    #[test]
    fn suites_of_tls_1_3() {
        let selection = tls13_suites(
            "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256",
        );
        let names: Vec<&str> = selection.chosen.iter().map(|suite| suite.name()).collect();
        assert_eq!(
            names,
            ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"]
        );
        assert_eq!(selection.left_out, ["TLS_AES_128_CCM_SHA256"]);
    }
}
