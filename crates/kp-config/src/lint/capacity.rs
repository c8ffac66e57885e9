//! Traps of numbers and surroundings: limits that hold in each worker, more connections than there may be, a name server
//! that cannot know a name, a log that is a file by mistake.

use super::{Here, inside};
use crate::Config;
use crate::diagnostic::Diagnostic;

/// Name servers of the public internet by the beginning of their addresses.
const PUBLIC: [&str; 10] = [
    "1.1.1.1",
    "1.0.0.1",
    "8.8.8.8",
    "8.8.4.4",
    "9.9.9.9",
    "149.112.112.112",
    "208.67.222.222",
    "208.67.220.220",
    "[2606:4700:4700::",
    "[2001:4860:4860::",
];

/// Endings of names that the public internet does not have.
const PRIVATE: [&str; 9] = [
    ".local",
    ".internal",
    ".svc",
    ".consul",
    ".lan",
    ".home",
    ".docker",
    ".localdomain",
    ".corp",
];

/// Looks at one directive.
pub(super) fn check(here: Here<'_>, config: &Config, found: &mut Vec<Diagnostic>) {
    match here.name() {
        "server" => found.extend(counted_apart(here, config)),
        "keepalive" => found.extend(keeps_too_many(here, config)),
        "worker_rlimit_nofile" => found.extend(too_few_files(here, config)),
        "resolver" => found.extend(cannot_know(here)),
        "error_log" => found.extend(log_called_off(here)),
        _ => {}
    }
}

/// `max_conns` of a group whose state is not shared.
fn counted_apart(here: Here<'_>, config: &Config) -> Option<Diagnostic> {
    let group = here.inside("upstream")?;
    let limit = |text: &str| text.starts_with("max_conns=") && text != "max_conns=0";
    let index = here
        .directive
        .args
        .iter()
        .position(|word| limit(&word.text))?;
    let shared = inside(group).iter().any(|one| one.name.text == "zone");
    if shared || config.main.worker_processes == Some(1) || !config.main.master_process {
        return None;
    }
    let name = group.args.first().map_or("name", |word| word.text.as_str());
    Some(here.warning(
        index,
        "\"max_conns\" holds in each worker by itself: all together may open as many times more",
        format!("share the state of the group: `zone {name} 64k;`"),
    ))
}

fn keeps_too_many(here: Here<'_>, config: &Config) -> Option<Diagnostic> {
    let kept: u32 = here
        .inside("upstream")
        .and_then(|_| here.arg(0)?.parse().ok())?;
    let most = config.main.worker_connections;
    (kept >= most).then(|| {
        here.warning(
            0,
            format!(
                "\"keepalive {kept}\" may use up the {most} connections of a worker with idle ones"
            ),
            "keep fewer, or raise \"worker_connections\" in events",
        )
    })
}

fn too_few_files(here: Here<'_>, config: &Config) -> Option<Diagnostic> {
    let (files, most) = (
        config.main.worker_rlimit_nofile?,
        config.main.worker_connections,
    );
    (files < u64::from(most)).then(|| {
        here.warning(
            0,
            format!("{files} open files are too few for the {most} connections of a worker"),
            "a proxied request takes two, and files and logs some more: at least twice \"worker_connections\"",
        )
    })
}

/// A public name server that is asked for a name of this network.
fn cannot_know(here: Here<'_>) -> Option<Diagnostic> {
    let public = |text: &str| PUBLIC.iter().any(|address| text.starts_with(address));
    let args = &here.directive.args;
    let index = args.iter().position(|word| public(&word.text))?;
    let addresses = args.iter().filter(|word| !word.text.contains('='));
    // Another one may know the names.
    if addresses.into_iter().any(|word| !public(&word.text)) {
        return None;
    }
    let block = here.around.last()?;
    let groups: Vec<&crate::syntax::Directive> = match block.name.text.as_str() {
        "upstream" => vec![block],
        _ => inside(block)
            .iter()
            .filter(|one| one.name.text == "upstream")
            .filter(|one| !inside(one).iter().any(|own| own.name.text == "resolver"))
            .collect(),
    };
    let servers = groups
        .iter()
        .flat_map(|group| inside(group))
        .filter(|one| one.name.text == "server");
    let looked_up = servers.filter(|one| one.args.iter().any(|word| word.text == "resolve"));
    let hosts = looked_up.filter_map(|one| one.args.first()?.text.split(':').next());
    let name = hosts.into_iter().find(|host| {
        let inner = host.trim_end_matches('.');
        !inner.contains('.') || PRIVATE.iter().any(|ending| inner.ends_with(ending))
    })?;
    Some(here.warning(
        index,
        format!("a public name server does not know \"{name}\""),
        "ask the name server of this network, as /etc/resolv.conf names it",
    ))
}

fn log_called_off(here: Here<'_>) -> Option<Diagnostic> {
    (here.arg(0)? == "off").then(|| {
        here.warning(
            0,
            "\"error_log off\" writes to a file called \"off\"",
            "an error log cannot be turned off; `error_log /dev/null crit;` comes closest",
        )
    })
}
