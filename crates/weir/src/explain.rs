//! `weir explain`: which rule decides whether somebody may do something.

use control::{ControlRequest, Reply};
use serde::{Deserialize, Serialize};
use service::{Doing, Explained, Question, Role, Service};
use types::{ErrorCode, NsPath};

use crate::Failure;
use crate::cli::ExplainArgs;
use crate::cluster_views::{asked, print};
use crate::exit::Exit;
use crate::table::table_lines;

/// The answer, as the command shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ExplainView {
    /// Whether the rules allow it.
    allowed: bool,
    /// The rule that decides: the one that denies it, else the last one.
    rule: Option<String>,
    /// Why it would not be done although the rules allow it.
    otherwise: Option<String>,
    /// All decisions in their order.
    steps: Vec<StepView>,
}

/// A decision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct StepView {
    place: String,
    needs: String,
    allowed: bool,
    rule: String,
}

/// Answers a request; `None`: it is about something else.
pub(crate) fn answer(service: &Service, ask: &ControlRequest) -> Option<Reply> {
    let ControlRequest::Explain { path, to, operation, who, groups, scopes } = ask else { return None };
    let question = || {
        let path = parsed(path)?;
        let to = to.as_deref().map(parsed).transpose()?;
        let doing =
            Doing::named(operation).ok_or_else(|| format!("`{operation}` is no operation that can be explained"))?;
        if doing.has_two_names() != to.is_some() {
            return Err("give a new name for rename and link, and for nothing else".to_owned());
        }
        let (who, groups, scopes) = (who.clone(), groups.clone(), scopes.clone());
        Ok(Question { who, groups, scopes, doing, path, to })
    };
    Some(match question().map(|question| service.explain(&question)) {
        Ok(Ok(explained)) => Reply::long(&view(without_stores(service, operation, explained))),
        Ok(Err(error)) if error.code() == ErrorCode::NotFound => Reply::Absent(error.to_string()),
        Ok(Err(error)) => Reply::Refused(error.to_string()),
        Err(why) => Reply::Refused(why),
    })
}

/// A manager chooses stores before it opens a file for writing, and the rehearsal does not. So what it finds missing there says
/// nothing. What it finds about names does.
fn without_stores(service: &Service, operation: &str, explained: Explained) -> Explained {
    use ErrorCode::{Denied, Exists, IsDirectory, Loop, NotDirectory, NotFile, NotFound};
    let opens = matches!(Doing::named(operation), Some(Doing::Write | Doing::Create | Doing::Replace));
    let is_of_names =
        |code: ErrorCode| matches!(code, Denied | Exists | IsDirectory | Loop | NotDirectory | NotFile | NotFound);
    let keeps_all = !opens || !matches!(service.role(), Role::Manager(_));
    let refused = explained.refused.filter(|(code, _)| keeps_all || is_of_names(*code));
    Explained { refused, ..explained }
}

fn parsed(path: &str) -> Result<NsPath, String> {
    NsPath::parse(path.as_bytes()).map_err(|error| format!("`{path}`: {error}"))
}

fn view(Explained { steps, refused }: Explained) -> ExplainView {
    let (denied, otherwise) = match refused {
        Some((ErrorCode::Denied, text)) => (Some(text), None),
        Some((_, text)) => (None, Some(text)),
        None => (None, None),
    };
    ExplainView {
        allowed: denied.is_none(),
        rule: denied.or_else(|| steps.last().map(|step| format!("{}: {}", step.place, step.rule))),
        otherwise,
        steps: steps
            .into_iter()
            .map(|step| StepView {
                place: step.place,
                needs: step.needs.to_owned(),
                allowed: step.allowed,
                rule: step.rule,
            })
            .collect(),
    }
}

/// Runs the command. Denied: it ends with the code for that.
pub(crate) fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let ask = ControlRequest::Explain {
        path: args.path.clone(),
        to: args.to.clone(),
        operation: args.operation.clone(),
        who: args.who.clone(),
        groups: args.groups.clone(),
        scopes: (!args.scopes.is_empty()).then(|| args.scopes.join(" ")),
    };
    let view: ExplainView = asked(&args.node.data, &ask)?;
    print(&args.node, &view, lines)?;
    Ok(if view.allowed { Exit::Done } else { Exit::Denied })
}

fn lines(view: &ExplainView) -> Vec<String> {
    let row = |step: &StepView| {
        let verdict = if step.allowed { "yes" } else { "no" };
        vec![step.place.clone(), step.needs.clone(), verdict.to_owned(), step.rule.clone()]
    };
    let mut lines =
        table_lines(&["where", "needs", "has it", "by the rule"], &view.steps.iter().map(row).collect::<Vec<_>>());
    let rule = view.rule.as_deref().unwrap_or("no rule was needed");
    lines.push(format!("{}: {rule}", if view.allowed { "allowed" } else { "denied" }));
    lines.extend(view.otherwise.as_ref().map(|why| format!("It would still not be done: {why}")));
    lines
}
