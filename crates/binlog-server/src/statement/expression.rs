//! Values that clients ask for.

/// From which values of a system variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Global,
    Session,
    Default,
}

/// A system variable, its name in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VariableName {
    pub(crate) scope: Scope,
    pub(crate) name: String,
}

/// What a value is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    System(VariableName),
    /// `@name`, in lower case.
    User(String),
    /// Digits, as they were written.
    Number(String),
    Text(String),
    Null,
    /// A word such as ON or DEFAULT.
    Word(String),
    /// A function, its name in lower case.
    Call(String, Vec<Expression>),
}
