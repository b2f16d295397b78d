//! Whole-system tests of the workspace.
