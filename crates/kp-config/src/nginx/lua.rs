//! Where a block of Lua ends, as in `content_by_lua_block { … }`.
//!
//! kp runs no Lua. It steps over such a block as a whole, so that what it says about the configuration is about the
//! directive and not about braces and quotes of another language.

/// What a directive is called that has Lua in its block.
pub(super) fn has_lua(name: &str) -> bool {
    name.ends_with("_by_lua_block")
}

/// Where the `}` stands that ends the block whose inside begins at this offset; `None` where none does.
pub(super) fn end(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from;
    let mut depth = 0_usize;
    loop {
        let byte = *bytes.get(at)?;
        match byte {
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            b'{' => depth += 1,
            b'"' | b'\'' => {
                at = behind_string(bytes, at)?;
                continue;
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at = behind_comment(bytes, at + 2);
                continue;
            }
            b'[' => {
                if let Some(behind) = behind_long(bytes, at) {
                    at = behind;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// A quoted text ends at its quote, or, broken as it then is, at the end of the line.
fn behind_string(bytes: &[u8], quote_at: usize) -> Option<usize> {
    let quote = bytes.get(quote_at)?;
    let mut at = quote_at + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 1,
            byte if byte == quote || *byte == b'\n' => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
}

/// `--[[ … ]]`, or to the end of the line.
fn behind_comment(bytes: &[u8], from: usize) -> usize {
    if let Some(behind) = behind_long(bytes, from) {
        return behind;
    }
    let rest = bytes.get(from..).unwrap_or_default();
    let line = rest.iter().position(|byte| *byte == b'\n');
    from + line.unwrap_or(rest.len())
}

/// `[[ … ]]`, `[=[ … ]=]`; `None` where none begins here or it has no end.
fn behind_long(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?.strip_prefix(b"[")?;
    let level = rest.iter().take_while(|byte| **byte == b'=').count();
    let inside = rest.get(level..)?.strip_prefix(b"[")?;
    let mut closing = vec![b'='; level + 2];
    if let [first, .., last] = closing.as_mut_slice() {
        (*first, *last) = (b']', b']');
    }
    let length = inside
        .windows(closing.len())
        .position(|window| window == closing)?;
    Some(from + 2 + level + length + closing.len())
}

#[cfg(test)]
mod tests {
    use super::end;
    use proptest::prelude::*;

    #[test]
    fn the_brace_that_ends_the_block_is_found() {
        for (inside, rest) in [
            ("", "} x"),
            (" local t = { a = {} } ", "}"),
            (" say(\"}\") say('\\'}') ", "}"),
            (" -- don't }\n x() ", "}"),
            (" --[[ } ]] --[==[ }]] ]==] ", "} }"),
            (" x = [[ }\" ]] y = t[1] ", "}"),
            (" s = 'broken\n ", "}"),
        ] {
            assert_eq!(
                end(&format!("{inside}{rest}"), 0),
                Some(inside.len()),
                "{inside}"
            );
        }
        assert_eq!(end("{ }", 0), None);
        assert_eq!(end(" -- }", 0), None);
    }

    proptest! {
        #[test]
        fn any_text_is_stepped_over(text in "[-\\[\\]={}\"'\\\\\na é]{0,40}") {
            if let Some(at) = end(&text, 0) {
                prop_assert_eq!(text.as_bytes()[at], b'}');
            }
        }
    }
}
