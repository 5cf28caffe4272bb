//! The command line of administrators and their contexts.

use clap::{Args, Subcommand};
use link::admin::AdminRole;

use super::{
    Cli, Command, IdentityCommand, ManagerArgs, NodeCommand, PolicyCommand, QuotaCommand, StoreCommand, TargetArgs,
    TokenCommand, TreeCommand,
};

/// Arguments of `weir admin`.
#[derive(Args, Debug, Clone)]
pub struct AdminArgs {
    /// The command.
    #[command(subcommand)]
    pub command: AdminCommand,
}

/// Commands on administrators.
#[derive(Subcommand, Debug, Clone)]
pub enum AdminCommand {
    /// Invite somebody as an administrator, and print the invitation: one line.
    ///
    /// Send it to that person over a channel that nobody else reads. They run `weir context add` with it. It works
    /// once, until it expires.
    Invite(InviteArgs),
    /// List administrators and invitations: roles, states, and until when they last. Also the roles that the settings give.
    List(ManagerArgs),
    /// Show the fingerprint of the cluster's authority, or replace its key (`rotate`, `retire`).
    ///
    /// The fingerprint is no secret. People with tokens or certificates of the grid add the cluster as a context with it.
    Authority(AuthorityArgs),
    /// Revoke an administrator, or an invitation: at once, also for connections that are open.
    Revoke(AdminRevokeArgs),
}

/// Arguments of `weir admin authority`.
#[derive(Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuthorityArgs {
    /// The command; without one, the authority is shown.
    #[command(subcommand)]
    pub command: Option<AuthorityCommand>,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Commands on the key of the cluster's authority.
#[derive(Subcommand, Debug, Clone)]
pub enum AuthorityCommand {
    /// Make a new key for the authority. Both authorities are trusted from then on, and all nodes get certificates of the new one.
    ///
    /// Then make a backup, wait until `weir admin authority` names no more nodes, and run `weir admin authority retire`.
    Rotate(ManagerArgs),
    /// Trust the earlier authority no more: its key is worth nothing from then on.
    ///
    /// Refused while nodes have no certificate of the new authority.
    Retire(AuthorityRetireArgs),
}

/// Arguments of `weir admin authority retire`.
#[derive(Args, Debug, Clone)]
pub struct AuthorityRetireArgs {
    /// Retire it also if nodes have no certificate of the new authority yet. These are shut out, and must join again.
    #[arg(long)]
    pub force: bool,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

impl AuthorityArgs {
    /// The manager to ask.
    fn manager(&mut self) -> &mut ManagerArgs {
        match &mut self.command {
            None => &mut self.manager,
            Some(AuthorityCommand::Rotate(args)) => args,
            Some(AuthorityCommand::Retire(args)) => &mut args.manager,
        }
    }
}

/// Arguments of `weir admin invite`.
#[derive(Args, Debug, Clone)]
pub struct InviteArgs {
    /// The name of the administrator, for lists and the audit log.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What the administrator may do: viewer, operator or admin.
    #[arg(long, value_name = "ROLE", value_parser = str::parse::<AdminRole>)]
    pub role: AdminRole,
    /// How long the invitation can be redeemed, as in 1h; at most 30d.
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub valid: String,
    /// How long the administrator has access, as in 180d; certificates are renewed until then [default: until it is
    /// revoked].
    #[arg(long, value_name = "DURATION")]
    pub access: Option<String>,
    /// The manager to ask.
    #[command(flatten)]
    pub data: TargetArgs,
}

/// Arguments of `weir admin revoke`.
#[derive(Args, Debug, Clone)]
pub struct AdminRevokeArgs {
    /// The name of the administrator.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir context`.
#[derive(Args, Debug, Clone)]
pub struct ContextArgs {
    /// The command.
    #[command(subcommand)]
    pub command: ContextCommand,
}

/// Commands on contexts.
#[derive(Subcommand, Debug, Clone)]
pub enum ContextCommand {
    /// Redeem an invitation, and keep its cluster as a context. The first context becomes the current one.
    ///
    /// The key is made on this machine and never leaves it. With --authority instead of an invitation, commands show your
    /// bearer token to the cluster (BEARER_TOKEN, BEARER_TOKEN_FILE, ...), or your certificate of the grid
    /// (X509_USER_PROXY, X509_USER_CERT, ...).
    Add(ContextAddArgs),
    /// List the contexts. `*` marks the current one.
    List(ContextListArgs),
    /// Make a context the current one: commands without --cluster and --data ask its cluster.
    Use(OneContextArgs),
    /// Remove a context with its key. The cluster still knows the administrator: `weir admin revoke` ends that.
    Remove(OneContextArgs),
}

/// Arguments of `weir context add`.
#[derive(Args, Debug, Clone)]
#[command(group = clap::ArgGroup::new("invitation").required(true).args(["invite", "invite_file", "authority"]))]
pub struct ContextAddArgs {
    /// The name of the context, for --cluster.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The invitation that `weir admin invite` printed. Others can see it in the list of processes; use --invite-file
    /// to avoid that.
    #[arg(long, value_name = "INVITATION")]
    pub invite: Option<InviteText>,
    /// The file that holds the invitation; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub invite_file: Option<std::path::PathBuf>,
    /// The fingerprint of the cluster's authority, as `weir admin authority` prints it: commands show a bearer token
    /// or a certificate to managers that it has certified.
    #[arg(long, value_name = "FINGERPRINT", requires = "manager", value_parser = str::parse::<link::Fingerprint>)]
    pub authority: Option<link::Fingerprint>,
    /// The address of a manager, as this machine reaches it; may be given several times [default: those in the
    /// invitation].
    #[arg(long, value_name = "HOST:PORT", value_parser = config::keys::address)]
    pub manager: Vec<String>,
}

/// An invitation, as it was given. Whoever reads it can redeem it, so it is not shown.
#[derive(Clone)]
pub struct InviteText(pub String);

impl std::fmt::Debug for InviteText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InviteText(not shown)")
    }
}

impl std::str::FromStr for InviteText {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

/// Arguments of `weir context list`.
#[derive(Args, Debug, Clone)]
pub struct ContextListArgs {
    /// Print JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Which context.
#[derive(Args, Debug, Clone)]
pub struct OneContextArgs {
    /// The name of the context.
    #[arg(value_name = "NAME")]
    pub name: String,
}

impl Cli {
    /// Gives the `--cluster` before the command to the command. Refuses it for commands that ask no running node.
    pub(super) fn with_cluster(mut self, command: &mut clap::Command) -> Result<Self, clap::Error> {
        let Some(cluster) = self.cluster.take() else { return Ok(self) };
        let mut wrong = |kind, text: &str| -> Result<Self, clap::Error> { Err(command.error(kind, text)) };
        match self.command.target() {
            None => wrong(
                clap::error::ErrorKind::ArgumentConflict,
                "--cluster is for the commands that ask a running cluster, and this command asks none",
            ),
            Some(target) if target.data.is_some() || target.cluster.is_some() => wrong(
                clap::error::ErrorKind::ArgumentConflict,
                "--cluster before the command cannot be used with --data or --cluster after it",
            ),
            Some(target) => {
                target.cluster = Some(cluster);
                Ok(self)
            }
        }
    }
}

impl Command {
    /// What the command asks, if it asks a running node.
    fn target(&mut self) -> Option<&mut TargetArgs> {
        Some(match self {
            Self::Token(args) => match &mut args.command {
                TokenCommand::Create(args) => &mut args.data,
                TokenCommand::List(args) => &mut args.data,
                TokenCommand::Revoke(args) => &mut args.manager.data,
            },
            Self::Identity(args) => match &mut args.command {
                IdentityCommand::List(args) => &mut args.node.data,
                IdentityCommand::Show(args) | IdentityCommand::Add(args) => &mut args.node.data,
                IdentityCommand::Rename(args) => &mut args.node.data,
                IdentityCommand::Test(_) => return None,
            },
            Self::Admin(args) => match &mut args.command {
                AdminCommand::Invite(args) => &mut args.data,
                AdminCommand::List(args) => &mut args.data,
                AdminCommand::Authority(args) => &mut args.manager().data,
                AdminCommand::Revoke(args) => &mut args.manager.data,
            },
            Self::Status(args) => &mut args.manager.data,
            Self::Stores(args) => &mut args.data,
            Self::File(args) => &mut args.manager.data,
            Self::Missing(args) => &mut args.manager.data,
            Self::Policy(args) => match &mut args.command {
                PolicyCommand::Set(args) => &mut args.manager.data,
                PolicyCommand::Apply(args) => &mut args.manager.data,
                PolicyCommand::Get(args) | PolicyCommand::Remove(args) => &mut args.manager.data,
                PolicyCommand::List(args) => &mut args.data,
            },
            Self::Tree(args) => match &mut args.command {
                TreeCommand::Create(args) => &mut args.node.data,
                TreeCommand::Owner(args) => &mut args.node.data,
                TreeCommand::List(args) => &mut args.data,
            },
            Self::Quota(args) => match &mut args.command {
                QuotaCommand::Set(args) => &mut args.node.data,
                QuotaCommand::List(args) => &mut args.node.data,
            },
            Self::Repair(args) => &mut args.manager.data,
            Self::Drain(args) => &mut args.manager.data,
            Self::Store(args) => match &mut args.command {
                StoreCommand::Add(_) => return None,
                StoreCommand::ReadOnly(args) | StoreCommand::Online(args) => &mut args.manager.data,
                StoreCommand::Remove(args) => &mut args.manager.data,
            },
            Self::Node(args) => match &mut args.command {
                NodeCommand::Remove(args) => &mut args.manager.data,
            },
            Self::Scrub(args) => &mut args.data,
            Self::Restored(args) => &mut args.manager.data,
            Self::Fsck(args) if args.cluster && args.data.is_none() => &mut args.manager,
            Self::Top(args) if args.node.is_none() => &mut args.data,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn parsed(line: &str) -> Result<Cli, Exit> {
        crate::cli::parse(line.split(' ').map(Into::into))
    }

    #[test]
    fn a_tree_gets_one_owner_and_a_context_one_way_in() {
        let authority = "0".repeat(64);
        for line in [
            "weir tree owner /a ana",
            "weir tree owner /a --group g",
            "weir tree owner /a --nobody --cluster /run/s",
            &format!("weir context add lab --authority {authority} --manager m:1095"),
            "weir context add lab --invite-file f",
        ] {
            assert!(parsed(line).is_ok(), "{line}");
        }
        for line in [
            "weir tree owner /a",
            "weir tree owner /a ana --nobody",
            "weir tree owner /a ana --group g",
            &format!("weir context add lab --authority {authority}"),
            &format!("weir context add lab --authority {authority} --manager m:1095 --invite-file f"),
            "weir context add lab --authority 00 --manager m:1095",
            "weir context add lab --manager m:1095",
        ] {
            assert_eq!(parsed(line).err(), Some(Exit::Usage), "{line}");
        }
    }

    #[test]
    fn the_cluster_may_stand_before_or_after_the_command() {
        for line in ["weir --cluster c status", "weir status --cluster c", "weir --cluster c drain 7 --wait"] {
            let mut cli = parsed(line).unwrap();
            assert_eq!(cli.command.target().unwrap().cluster.as_deref(), Some("c"), "{line}");
        }
        for line in [
            "weir --cluster c status --data d",
            "weir --cluster c status --cluster c",
            "weir status --cluster c --data d",
            "weir --cluster c init --data d",
            "weir --cluster c top 127.0.0.1:1",
            "weir top 127.0.0.1:1 --cluster c",
        ] {
            assert_eq!(parsed(line).err(), Some(Exit::Usage), "{line}");
        }
    }
}
