//! The table of principals: names of users and of groups, and their numbers. Files, ACLs and requests have the numbers only.

pub(crate) mod check;
pub(crate) mod name;
pub(crate) mod rename;
pub(crate) mod table;
