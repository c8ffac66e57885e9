//! The pages about kp itself: the groups they name.

use super::location::Builder;
use crate::draft::{PageDraft, PageKind};
use crate::model::{Page, UpstreamId};
use crate::span::Spanned;
use crate::suggest::nearest;

impl Builder<'_, '_> {
    /// A page with what it names; `None` after an error.
    pub(super) fn page(&mut self, page: &PageDraft) -> Option<Page> {
        Some(match &page.kind {
            PageKind::Metrics => Page::Metrics,
            PageKind::StubStatus => Page::StubStatus,
            PageKind::Status => Page::Status,
            PageKind::Health(None) => Page::Health { upstream: None },
            PageKind::Health(Some(name)) => Page::Health {
                upstream: Some(self.group_of_page(name)?),
            },
        })
    }

    fn group_of_page(&mut self, name: &Spanned<String>) -> Option<UpstreamId> {
        if let Some(known) = self.explicit.get(&name.value.to_ascii_lowercase()) {
            return Some(*known);
        }
        let groups = self.upstreams.iter().filter(|group| !group.implicit);
        let hint = match nearest(&name.value, groups.map(|group| group.name.as_str())) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "a group is defined with \"upstream\" in http".to_owned(),
        };
        let message = format!("unknown upstream \"{}\"", name.value);
        self.reader.refuse(name.span, message, hint);
        None
    }
}
