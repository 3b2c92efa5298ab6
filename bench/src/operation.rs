//! An operation: a thing that is done over and over, prepared apart from doing it, so that preparing is neither timed nor counted.

use std::rc::Rc;

/// Does the operation once a call.
pub type Doing = Box<dyn FnMut()>;

/// A thing that is done over and over.
#[derive(Clone)]
pub struct Operation {
    /// Its name: group, then operation.
    pub name: String,
    /// What one time does: so many of these.
    pub elements: u64,
    /// What these are, in the plural.
    pub of: &'static str,
    /// The most times that one preparation serves.
    pub most: usize,
    prepare: Rc<dyn Fn() -> Doing>,
}

impl Operation {
    /// An operation that `prepare` makes ready to be done `most` times.
    pub fn new(
        name: impl Into<String>,
        (elements, of): (u64, &'static str),
        most: usize,
        prepare: impl Fn() -> Doing + 'static,
    ) -> Operation {
        Operation { name: name.into(), elements, of, most, prepare: Rc::new(prepare) }
    }

    /// Makes it ready to be done up to [`Operation::most`] times.
    pub fn prepare(&self) -> Doing {
        (self.prepare)()
    }
}
