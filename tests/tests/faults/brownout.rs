//! The short form of `make brownout`.

use std::time::Duration;

use kp_tests::brownout;

/// A slow server and a refusing one cost no request, and a group of which nobody is well gets what the retry budget allows
/// beyond its load: a fifth.
///
/// Shows: retry_budget
#[test]
fn a_brown_out_is_not_made_worse() {
    let figures = brownout::run("", Duration::from_secs(2));
    assert!(figures.requests > 100, "{figures:?}");
    assert!(figures.success() >= 0.999, "{figures:?}");
    assert!(figures.load() <= 1.2, "{figures:?}");
    // Of the first moments some retries are under way before there is a load that they are a fifth of.
    assert!(figures.dying_load() <= 1.25, "{figures:?}");
    assert!(
        figures.dying_load() > 1.0,
        "nothing is retried: {figures:?}"
    );
}
