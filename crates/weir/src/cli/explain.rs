//! The command line of `weir explain`.

use clap::Args;
use service::Doing;

use super::ManagerArgs;

/// Arguments of `weir explain`.
#[derive(Args, Debug, Clone)]
pub struct ExplainArgs {
    /// The path.
    pub path: String,
    /// The user, by name or number.
    #[arg(long = "as", value_name = "USER")]
    pub who: String,
    /// The operation: stat, read, list, write, create, replace, mkdir, remove, rename, link, symlink, chmod, chown, set-acl,
    /// set-attribute or touch.
    #[arg(long = "do", value_name = "OPERATION", value_parser = operation)]
    pub operation: String,
    /// The new name, for rename and link.
    #[arg(long, value_name = "PATH")]
    pub to: Option<String>,
    /// A group of the user, by name or number; can be given several times. Groups come with the credential, so the node
    /// does not know them.
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// A scope of the user's token, as in storage.read:/data, with the issuer's base path in front; can be given several
    /// times. Without one, the credential sets no limits.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// The node to ask.
    #[command(flatten)]
    pub node: ManagerArgs,
}

fn operation(text: &str) -> Result<String, String> {
    Doing::named(text).map(|_| text.to_owned()).ok_or_else(|| {
        let names: Vec<&str> = Doing::ALL.iter().map(|(name, _)| *name).collect();
        format!("it is one of {}", names.join(", "))
    })
}
