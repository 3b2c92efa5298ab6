//! No bytes make the checker panic, and none that matter pass it.

use crate::forge::{Folder, recorded};
use proptest::prelude::*;
use std::sync::LazyLock;

/// A short run, so that many copies of it can be mangled.
static SHORT: LazyLock<Folder> = LazyLock::new(|| recorded("contention", 1, &[]));

/// One way of mangling bytes.
#[derive(Clone, Debug)]
enum Mangle {
    Flip(usize, u8),
    Cut(usize),
    Drop(usize, usize),
    Repeat(usize, usize),
    Swap(usize, usize, usize),
}

fn mangle() -> impl Strategy<Value = Mangle> {
    let at = 0..usize::MAX;
    prop_oneof![
        4 => (at.clone(), 1..=u8::MAX).prop_map(|(at, by)| Mangle::Flip(at, by)),
        1 => at.clone().prop_map(Mangle::Cut),
        1 => (at.clone(), 1..400usize).prop_map(|(at, length)| Mangle::Drop(at, length)),
        1 => (at.clone(), 1..400usize).prop_map(|(at, length)| Mangle::Repeat(at, length)),
        1 => (at.clone(), at, 1..100usize).prop_map(|(one, other, length)| Mangle::Swap(one, other, length)),
    ]
}

fn mangled(bytes: &[u8], mangle: &Mangle) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let length = bytes.len();
    if length < 2 {
        return bytes;
    }
    match *mangle {
        Mangle::Flip(at, by) => bytes[at % length] ^= by,
        Mangle::Cut(at) => bytes.truncate(at % length),
        Mangle::Drop(at, many) => drop(bytes.drain(at % length..(at % length).saturating_add(many).min(length))),
        Mangle::Repeat(at, many) => {
            let range = at % length..(at % length).saturating_add(many).min(length);
            let again = bytes[range.clone()].to_vec();
            drop(bytes.splice(range.end..range.end, again));
        }
        Mangle::Swap(one, other, many) => {
            let (one, other) = ((one % length).min(other % length), (one % length).max(other % length));
            let many = many.min(other - one).min(length - other);
            let (front, back) = bytes.split_at_mut(other);
            front[one..one + many].swap_with_slice(&mut back[..many]);
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_mangled_file_neither_panics_nor_passes(file in 0..3usize, mangles in prop::collection::vec(mangle(), 1..4)) {
        let mut folder = SHORT.clone();
        let before = [folder.history.clone(), folder.log.clone().into_bytes(), folder.capsule.clone().into_bytes()];
        let after = mangles.iter().fold(before[file].clone(), |bytes, way| mangled(&bytes, way));
        prop_assume!(after != before[file]);
        match (file, String::from_utf8(after.clone())) {
            (0, _) => folder.history = after,
            (1, Ok(text)) => folder.log = text,
            (_, Ok(text)) => folder.capsule = text,
            // What is not UTF-8 cannot be put down as text: it is left out here, and refused below.
            (_, Err(_)) => return Ok(()),
        }
        if let Ok(checked) = folder.check() {
            prop_assert!(!checked.is_ok(), "file {file} passes though it was changed by {mangles:?}");
        }
    }

    /// With every outer hash made to fit, so that what is inside of the history is reached. Some of it says nothing that could
    /// be wrong, such as the text of a fault.
    #[test]
    fn a_mangled_history_with_fitting_hashes_never_panics(mangles in prop::collection::vec(mangle(), 1..3)) {
        let mut folder = SHORT.clone();
        folder.history = mangles.iter().fold(folder.history.clone(), |bytes, way| mangled(&bytes, way));
        folder.rehash();
        let _ = folder.check();
    }

    #[test]
    fn a_mangled_result_never_panics(mangles in prop::collection::vec(mangle(), 1..4)) {
        let mut folder = SHORT.clone();
        let text = folder.result.to_string().into_bytes();
        let text = mangles.iter().fold(text, |bytes, way| mangled(&bytes, way));
        if let Ok(result) = serde_json::from_slice(&text) {
            folder.result = result;
            let _ = folder.check();
        }
    }
}

#[test]
fn what_is_not_text_is_refused_or_found() {
    let above = tempfile::TempDir::new().expect("a folder");
    let folder = above.path();
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("writable");
    put("history.log", &SHORT.history);
    put("result.json", SHORT.result.to_string().as_bytes());
    put("capsule.toml", b"format = 1\nengine = \"\xff\"\n");
    put("events.jsonl", &[SHORT.log.as_bytes(), b"\xff\xfe\n"].concat());
    let error = scenarios::checker::check(folder).expect_err("no text").to_string();
    assert!(error.contains("capsule.toml, line 2: it is not UTF-8"), "{error}");
    put("capsule.toml", SHORT.capsule.as_bytes());
    let checked = scenarios::checker::check(folder).expect("it can be checked");
    assert!(!checked.is_ok(), "bytes that are no text pass at the end of the log");
}
