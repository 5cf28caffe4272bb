//! The tree of names: directories, files, symbolic links, their attributes and permissions.

pub(crate) mod acl;
pub(crate) mod acl_codec;
pub(crate) mod acl_text;
pub(crate) mod attributes;
pub(crate) mod inode;
pub(crate) mod link;
pub(crate) mod list;
pub(crate) mod lookup;
pub(crate) mod mkdir;
pub(crate) mod new_access;
pub(crate) mod node;
pub(crate) mod path_limits;
pub(crate) mod path_of;
pub(crate) mod permission;
pub(crate) mod remove;
pub(crate) mod remove_any;
pub(crate) mod rename;
pub(crate) mod rmdir;
pub(crate) mod rule;
pub(crate) mod set_acl;
pub(crate) mod symlink;
pub(crate) mod trail;
pub(crate) mod walk;
pub(crate) mod xattr;
