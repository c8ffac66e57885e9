//! Changes applied to overrides, and overrides carried over to other configurations.

use super::*;
use crate::model::{Config, PeerAddress};
use crate::{LoadOptions, load};
use proptest::prelude::*;

const GROUPS: &str = "
    upstream app { zone app 32k; server 127.0.0.1:1; server 127.0.0.1:2 weight=5; server 127.0.0.1:3 down; server 127.0.0.1:4 backup; }
    upstream api { server 127.0.0.1:1; server unix:/run/api; hash $uri; }
    upstream names { zone names 64k; resolver 127.0.0.1; server app.test:80 resolve; server 127.0.0.1:9; }
";

fn config(groups: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kp.conf");
    let text = format!(
        "events {{}} http {{ {groups} server {{ location / {{ proxy_pass http://127.0.0.9:7; }} }} }}"
    );
    std::fs::write(&path, text).unwrap();
    let loaded = load(&LoadOptions {
        path,
        prefix: "/prefix".into(),
        ..LoadOptions::default()
    });
    loaded
        .config
        .unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

fn resolved() -> Resolved {
    let address = |n| PeerAddress::Inet(([10, 0, 0, n], 80).into());
    Resolved::from([((2, 0), vec![address(1), address(2)])])
}

fn change(text: &str) -> Change {
    let words: Vec<&str> = text.split_whitespace().collect();
    Change::parse(&words).unwrap()
}

fn applied(changes: &[&str]) -> Result<Overrides, Complaint> {
    let (config, resolved) = (config(GROUPS), resolved());
    let ground = Ground::new(&config.http.upstreams, &resolved);
    let mut overrides = Overrides::default();
    for text in changes {
        overrides.apply(&change(text), &ground)?;
    }
    Ok(overrides)
}

/// `name=weight/max_conns` and d, D or nothing for each peer.
fn peers(number: usize, overrides: &Overrides) -> Vec<String> {
    let (config, resolved) = (config(GROUPS), resolved());
    peers_on(
        &Ground::new(&config.http.upstreams, &resolved),
        number,
        overrides,
    )
}

fn peers_on(ground: &Ground<'_>, number: usize, overrides: &Overrides) -> Vec<String> {
    let shown = ground.standings(number, overrides).map(|standing| {
        let settings = standing.settings;
        let state = match (settings.down, settings.drain) {
            (true, _) => " down",
            (_, true) => " drain",
            _ => "",
        };
        let limit = match settings.max_conns {
            0 => String::new(),
            limit => format!("/{limit}"),
        };
        format!("{}={}{limit}{state}", standing.address, settings.weight)
    });
    shown.collect()
}

#[test]
fn changes_are_what_they_say() {
    let overrides = applied(&[
        "peer remove app 127.0.0.1:1",
        "peer add APP 127.0.0.1:7 weight=2 drain",
        "peer weight app 127.0.0.1:2 9",
        "peer up app 127.0.0.1:3",
        "peer max_conns app 127.0.0.1:3 4",
        "peer down app 127.0.0.1:4",
    ])
    .unwrap();
    assert_eq!(
        peers(0, &overrides),
        [
            "127.0.0.1:2=9",
            "127.0.0.1:3=1/4",
            "127.0.0.1:4=1 down",
            "127.0.0.1:7=2 drain"
        ]
    );
    assert_eq!(overrides.count(), 6);
}

#[test]
fn up_is_an_override_only_against_the_configuration() {
    let overrides = applied(&[
        "peer down app 127.0.0.1:1",
        "peer drain app 127.0.0.1:1",
        "peer up app 127.0.0.1:1",
        "peer up app 127.0.0.1:2",
    ]);
    assert_eq!(overrides, Ok(Overrides::default()));
    let overrides = applied(&["peer up app 127.0.0.1:3"]).unwrap();
    assert_eq!(overrides.count(), 1);
}

#[test]
fn who_is_removed_can_be_added_again_and_given_up() {
    let changes = [
        "peer remove app 127.0.0.1:1",
        "peer add app 127.0.0.1:1 weight=3",
        "peer remove app 127.0.0.1:1",
        "peer add app 127.0.0.1:1 weight=4",
    ];
    let overrides = applied(&changes).unwrap();
    assert_eq!(peers(0, &overrides).last().unwrap(), "127.0.0.1:1=4");
    let more: Vec<&str> = changes
        .into_iter()
        .chain(["reset app 127.0.0.1:1"])
        .collect();
    assert_eq!(applied(&more), Ok(Overrides::default()));
}

#[test]
fn a_name_stands_for_all_its_addresses() {
    let overrides = applied(&["peer weight names APP.test:80 3"]).unwrap();
    assert_eq!(
        peers(2, &overrides),
        ["10.0.0.1:80=3", "10.0.0.2:80=3", "127.0.0.1:9=1"]
    );
    let later = applied(&[
        "peer weight names app.test:80 3",
        "peer weight names 10.0.0.2 5",
    ])
    .unwrap();
    assert_eq!(
        peers(2, &later),
        ["10.0.0.1:80=3", "10.0.0.2:80=5", "127.0.0.1:9=1"]
    );
    let earlier = applied(&[
        "peer weight names 10.0.0.2 5",
        "peer weight names app.test:80 3",
    ])
    .unwrap();
    assert_eq!(earlier, overrides, "what is said of all holds for each");
    let removed = applied(&[
        "peer remove names 10.0.0.2",
        "peer remove names app.test:80",
    ])
    .unwrap();
    assert_eq!(peers(2, &removed), ["127.0.0.1:9=1"]);
    assert_eq!(removed.count(), 1);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (changes, error, hint) in [
        (
            &["peer down ap 127.0.0.1:1"][..],
            "there is no upstream \"ap\"",
            "did you mean \"app\"?",
        ),
        (
            &["peer down nothing 127.0.0.1:1"],
            "there is no upstream \"nothing\"",
            "upstreams are: app, api, names",
        ),
        (
            &["peer down 127.0.0.9:7 127.0.0.9:7"],
            "is an address of \"proxy_pass\"",
            "upstream block",
        ),
        (
            &["peer down app 127.0.0.1:8"],
            "upstream \"app\" has no peer \"127.0.0.1:8\"",
            "did you mean \"127.0.0.1:1\"?",
        ),
        (
            &["peer down api zzz"],
            "has no peer \"zzz\"",
            "peers are: 127.0.0.1:1, unix:/run/api",
        ),
        (
            &["peer remove app 127.0.0.1:1", "peer down app 127.0.0.1:1"],
            "no peer \"127.0.0.1:1\"",
            "",
        ),
        (
            &["peer add app 127.0.0.1:1"],
            "has the peer 127.0.0.1:1 already",
            "peer weight",
        ),
        (
            &["peer add app 127.0.0.1:8", "peer add app 127.0.0.1:8"],
            "already",
            "",
        ),
        (
            &["peer add api 127.0.0.1:8 backup"],
            "does not support parameter \"backup\"",
            "\"hash\"",
        ),
        (
            &["peer add api 127.0.0.1:8 slow_start=3s"],
            "does not support parameter \"slow_start\"",
            "\"hash\"",
        ),
        (&["reset app 127.0.0.1:8"], "no peer", ""),
        (&["reset none"], "there is no upstream", ""),
    ] {
        let complaint = applied(changes).unwrap_err();
        assert!(complaint.error.contains(error), "{changes:?}: {complaint}");
        assert!(
            complaint.hint.clone().unwrap_or_default().contains(hint),
            "{changes:?}: {complaint}"
        );
    }
}

#[test]
fn a_full_zone_says_what_would_be_needed() {
    let changes: Vec<String> = (0..61)
        .map(|n| format!("peer add app 10.0.0.{n}:80"))
        .collect();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    assert_eq!(
        applied(&changes[..60]).map(|overrides| overrides.count()),
        Ok(60)
    );
    let complaint = applied(&changes).unwrap_err();
    assert_eq!(
        complaint.error,
        "zone \"app\" is full: its 32k hold 64 peers"
    );
    assert!(
        complaint
            .hint
            .unwrap()
            .starts_with("64k would hold this one")
    );
}

#[test]
fn whoever_takes_the_last_usable_peer_away_is_noticed() {
    let (config, resolved) = (config(GROUPS), resolved());
    let ground = Ground::new(&config.http.upstreams, &resolved);
    let emptied = |before: &[&str], after: &[&str]| {
        let after: Vec<&str> = before.iter().chain(after).copied().collect();
        let (before, after) = (applied(before).unwrap(), applied(&after).unwrap());
        let emptied = ground.emptied(&before, &after, |_, _| true);
        assert!(emptied.iter().all(|one| !one.unhealthy));
        emptied
            .iter()
            .map(|one| one.upstream)
            .collect::<Vec<&str>>()
    };
    let all = ["peer down api 127.0.0.1:1", "peer drain api unix:/run/api"];
    assert_eq!(emptied(&[], &all[..1]), [""; 0]);
    assert_eq!(emptied(&all[..1], &all[1..]), ["api"]);
    assert_eq!(emptied(&[], &all), ["api"]);
    // It was empty before.
    assert_eq!(emptied(&all, &["peer remove api unix:/run/api"]), [""; 0]);
    let swap = [
        "peer remove api 127.0.0.1:1",
        "peer remove api unix:/run/api",
        "peer add api 127.0.0.1:8",
    ];
    assert_eq!(emptied(&[], &swap), [""; 0]);
    // The backup is one.
    let primaries = ["peer down app 127.0.0.1:1", "peer down app 127.0.0.1:2"];
    assert_eq!(emptied(&[], &primaries), [""; 0]);
    assert_eq!(
        emptied(&primaries, &["peer drain app 127.0.0.1:4"]),
        ["app"]
    );
}

#[test]
fn a_peer_that_fails_its_checks_is_not_what_is_left() {
    let (config, resolved) = (config(GROUPS), resolved());
    let ground = Ground::new(&config.http.upstreams, &resolved);
    let emptied = |before: &[&str], after: &[&str], ill: &[&str]| {
        let after: Vec<&str> = before.iter().chain(after).copied().collect();
        let (before, after) = (applied(before).unwrap(), applied(&after).unwrap());
        let emptied = ground.emptied(&before, &after, |_, address| {
            !ill.contains(&address.to_string().as_str())
        });
        emptied
            .iter()
            .map(|one| (one.upstream, one.unhealthy))
            .collect::<Vec<_>>()
    };
    let first = ["peer down api 127.0.0.1:1"];
    assert_eq!(emptied(&[], &first, &["unix:/run/api"]), [("api", true)]);
    // It serves nobody anyway.
    assert_eq!(emptied(&[], &first, &["127.0.0.1:1"]), []);
    // Where none passes, settings are what counts.
    let all_ill = ["127.0.0.1:1", "unix:/run/api"];
    assert_eq!(emptied(&[], &first, &all_ill), []);
    let second = ["peer down api unix:/run/api"];
    assert_eq!(emptied(&first, &second, &all_ill), [("api", false)]);
    // One that was added and has not passed yet is nobody to rely on.
    let swap = ["peer add app 127.0.0.1:8", "peer down app 127.0.0.1:1"];
    let ill = ["127.0.0.1:8", "127.0.0.1:2", "127.0.0.1:4"];
    assert_eq!(emptied(&[], &swap, &ill), [("app", true)]);
}

#[test]
fn a_name_that_is_not_found_yet_is_not_taken_out_unnoticed() {
    let (config, nothing) = (config(GROUPS), Resolved::new());
    let ground = Ground::new(&config.http.upstreams, &nothing);
    let after = |changes: &[&str]| {
        let mut overrides = Overrides::default();
        for text in changes {
            overrides.apply(&change(text), &ground).unwrap();
        }
        overrides
    };
    let emptied = |before: &[&str], changes: &[&str]| {
        let emptied = ground.emptied(&after(before), &after(changes), |_, _| true);
        emptied.len()
    };
    let (known, name) = ("peer down names 127.0.0.1:9", "peer down names app.test:80");
    assert_eq!(emptied(&[], &[known]), 1, "the name has no address");
    assert_eq!(emptied(&[], &[name]), 0);
    assert_eq!(emptied(&[known], &[known, name]), 1, "nobody would come");
    assert_eq!(emptied(&[known, name], &[name]), 0);
}

/// A batch may have tens of thousands of changes, and a file as many lines; none of them looks at all others.
#[test]
fn many_changes_take_no_longer_than_their_number() {
    let mut text = String::from("kp-state 1\nupstream app\nlines 0000000000000000\n");
    for number in 0..50_000 {
        let peer = format!("10.0.{}.{}:80", number / 250, number % 250);
        text.push_str(&format!("add {peer}\nweight {peer} 2\n"));
    }
    let overrides = Overrides::from_text(&text).unwrap();
    assert_eq!(overrides.count(), 100_000);
    let (config, resolved) = (config(GROUPS), resolved());
    let ground = Ground::new(&config.http.upstreams, &resolved);
    let (left, dropped) = overrides.carry_over(&ground);
    assert_eq!((left.count(), dropped.len()), (0, 100_000));
}

#[test]
fn an_edited_file_decides_who_belongs_to_a_group() {
    let overrides = applied(&[
        "peer add app 127.0.0.1:7",
        "peer weight app 127.0.0.1:7 3",
        "peer remove app 127.0.0.1:1",
        "peer weight app 127.0.0.1:2 8",
        "peer down app 127.0.0.1:4",
        "peer drain api unix:/run/api",
        "peer weight names 10.0.0.1 2",
    ])
    .unwrap();
    let carry = |groups: &str| {
        let (config, resolved) = (config(groups), resolved());
        let ground = Ground::new(&config.http.upstreams, &resolved);
        overrides.carry_over(&ground)
    };
    assert_eq!(carry(GROUPS), (overrides.clone(), Vec::new()));
    // Written in another way, with another balancer and another zone they are the same lines.
    let same = GROUPS
        .replace("zone app 32k;", "least_conn;")
        .replace(" weight=5", "  weight=05");
    assert_eq!(carry(&same), (overrides.clone(), Vec::new()));
    let edited = GROUPS
        .replace("weight=5", "weight=6")
        .replace("server 127.0.0.1:4 backup;", "");
    let (carried, dropped) = carry(&edited);
    let kept: Vec<String> = carried
        .groups()
        .flat_map(|group| group.each())
        .map(|words| words.join(" "))
        .collect();
    assert_eq!(
        kept,
        [
            "drain unix:/run/api",
            "weight 127.0.0.1:2 8",
            "weight 10.0.0.1:80 2"
        ]
    );
    assert_eq!(dropped.len(), 4, "{dropped:?}");
    for (line, word) in dropped.iter().zip([
        "127.0.0.1:7 was added",
        "127.0.0.1:1 was removed",
        "no 127.0.0.1:7",
        "no 127.0.0.1:4",
    ]) {
        assert!(line.contains(word), "{line}");
    }
    let (carried, dropped) = carry("upstream app { server 127.0.0.1:2; }");
    assert_eq!(carried.count(), 1);
    assert!(
        dropped
            .iter()
            .any(|line| line.contains("no upstream \"api\"")),
        "{dropped:?}"
    );
}

fn any_change() -> impl Strategy<Value = String> {
    let group = prop::sample::select(vec!["app", "api", "names"]);
    let peer = prop::sample::select(vec![
        "127.0.0.1:1",
        "127.0.0.1:2",
        "127.0.0.1:3",
        "127.0.0.1:4",
        "127.0.0.1:7",
        "127.0.0.1:8",
        "127.0.0.1:9",
        "10.0.0.1:80",
        "10.0.0.3:80",
        "app.test:80",
        "unix:/run/api",
    ]);
    (group, peer, 0..10u8, 1..9u32).prop_map(|(group, peer, act, number)| match act {
        0 | 1 if peer != "app.test:80" => format!("peer add {group} {peer} weight={number}"),
        2 | 3 => format!("peer remove {group} {peer}"),
        4 => format!("peer drain {group} {peer}"),
        5 => format!("peer down {group} {peer}"),
        6 => format!("peer up {group} {peer}"),
        7 => format!("peer weight {group} {peer} {number}"),
        8 => format!("peer max_conns {group} {peer} {number}"),
        _ => format!("reset {group} {peer}"),
    })
}

proptest! {
    /// Whatever was changed: the text says it all, and a change that is refused leaves no trace.
    #[test]
    fn a_restart_finds_what_was_changed(changes in prop::collection::vec(any_change(), 0..40)) {
        let (config, resolved) = (config(GROUPS), resolved());
        let ground = Ground::new(&config.http.upstreams, &resolved);
        let mut overrides = Overrides::default();
        for text in &changes {
            let before = overrides.clone();
            if overrides.apply(&change(text), &ground).is_err() {
                prop_assert_eq!(&overrides, &before);
            }
            let text = overrides.to_text();
            let read = Overrides::from_text(&text).unwrap();
            prop_assert_eq!(&read, &overrides);
            let (carried, dropped) = read.carry_over(&ground);
            prop_assert_eq!(&carried, &overrides);
            prop_assert_eq!(dropped, Vec::<String>::new());
            for number in 0..3 {
                prop_assert_eq!(peers_on(&ground, number, &carried),
                    peers_on(&ground, number, &overrides));
            }
        }
    }
}
