//! Which sequence goes to which path.
