//! Parses the answer to `PROPFIND` (RFC 4918, 14.16): members with some properties, in XML. A directory may have
//! millions of members. They are passed on one by one, and the limits below bound the text that is kept.

use std::io::{BufRead, BufReader, Read};

use quick_xml::events::{BytesRef, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::reader::NsReader;

/// The most bytes between two events of the parser: a tag with all its attributes, or a text.
const EVENT_MAX: usize = 64 << 10;
/// The most bytes of a kept text.
const TEXT_MAX: usize = 16 << 10;
/// The deepest nesting of elements.
const DEPTH_MAX: usize = 32;

/// A member of a directory, or the directory itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Member {
    /// The last part of its path, decoded.
    pub(super) name: String,
    /// Whether it is the requested path itself.
    pub(super) is_itself: bool,
    pub(super) is_directory: bool,
    pub(super) len: Option<u64>,
    pub(super) quota_available: Option<u64>,
    pub(super) quota_used: Option<u64>,
}

/// Normalises a path for comparisons: decoded, without trailing or repeated slashes.
pub(super) fn path_of_reply(path: &str) -> String {
    let decoded = decode(path);
    let parts: Vec<&str> = decoded.split('/').filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// Decodes `%41` to `A`; invalid codes stay.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let code = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the path of a `href`, which is a path or a whole address.
fn path_of_href(href: &str) -> String {
    let href = href.trim();
    let path = match href.split_once("://") {
        Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"),
        None => href,
    };
    path_of_reply(path)
}

/// Passes each member of the answer to `each`. `asked` is the requested path ([`path_of_reply`]).
///
/// # Errors
/// The text says what is wrong with the answer.
pub(super) fn read(body: impl Read, asked: &str, each: &mut dyn FnMut(Member)) -> Result<(), String> {
    let bounded = Bounded { inner: BufReader::with_capacity(EVENT_MAX, body), left: EVENT_MAX };
    let mut reader = NsReader::from_reader(bounded);
    let (mut buffer, mut state) = (Vec::new(), State::default());
    loop {
        buffer.clear();
        reader.get_mut().left = EVENT_MAX;
        let (space, event) = reader.read_resolved_event_into(&mut buffer).map_err(|error| error.to_string())?;
        let is_dav = matches!(space, ResolveResult::Bound(Namespace(name)) if *name == *"DAV:");
        match event {
            Event::Start(tag) => state.begin(tag.local_name().as_ref(), is_dav)?,
            Event::Empty(tag) => {
                state.begin(tag.local_name().as_ref(), is_dav)?;
                state.end(asked, each)?;
            }
            Event::End(_) => state.end(asked, each)?,
            Event::Text(text) => state.add(&text.xml10_content())?,
            Event::CData(text) => state.add(&text.xml10_content())?,
            Event::GeneralRef(reference) => state.add(&resolved(&reference)?)?,
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    if !state.path.is_empty() {
        return Err("an answer that ends in the middle".to_owned());
    }
    if state.seen { Ok(()) } else { Err("an answer that is not a multistatus".to_owned()) }
}

/// Resolves `&amp;` and `&#65;`. Other entities are errors.
fn resolved(reference: &BytesRef<'_>) -> Result<String, String> {
    if let Ok(Some(letter)) = reference.resolve_char_ref() {
        return Ok(letter.to_string());
    }
    let name = reference.xml10_content();
    let found = quick_xml::escape::resolve_xml_entity(&name);
    found.map(str::to_owned).ok_or_else(|| format!("the unknown entity `{name}`"))
}

/// The elements that are used here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    Multistatus,
    Response,
    Href,
    Propstat,
    Prop,
    Status,
    ResourceType,
    Collection,
    Length,
    Available,
    Used,
    Other,
}

impl Element {
    fn of(name: &str, is_dav: bool) -> Self {
        match name {
            _ if !is_dav => Self::Other,
            "multistatus" => Self::Multistatus,
            "response" => Self::Response,
            "href" => Self::Href,
            "propstat" => Self::Propstat,
            "prop" => Self::Prop,
            "status" => Self::Status,
            "resourcetype" => Self::ResourceType,
            "collection" => Self::Collection,
            "getcontentlength" => Self::Length,
            "quota-available-bytes" => Self::Available,
            "quota-used-bytes" => Self::Used,
            _ => Self::Other,
        }
    }
}

/// The position of the parser, and the properties found of a member.
#[derive(Default)]
struct State {
    path: Vec<Element>,
    text: String,
    seen: bool,
    href: Option<String>,
    member: Member,
    /// The properties of the present `propstat`. They count only if its status is 200.
    properties: Member,
    is_found: bool,
}

impl State {
    fn begin(&mut self, name: &str, is_dav: bool) -> Result<(), String> {
        if self.path.len() >= DEPTH_MAX {
            return Err("elements nested too deeply".to_owned());
        }
        let element = Element::of(name, is_dav);
        self.path.push(element);
        self.text.clear();
        match (self.path.as_slice(), element) {
            ([Element::Multistatus], _) => self.seen = true,
            ([_], _) => return Err("an answer that is not a multistatus".to_owned()),
            ([_, Element::Response], _) => {
                (self.href, self.member) = (None, Member::default());
            }
            (_, Element::Propstat) => {
                (self.properties, self.is_found) = (Member::default(), true);
            }
            ([.., Element::ResourceType, _], Element::Collection) => self.properties.is_directory = true,
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        if self.text.len() + text.len() > TEXT_MAX {
            return Err(format!("a text of more than {TEXT_MAX} bytes"));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn end(&mut self, asked: &str, each: &mut dyn FnMut(Member)) -> Result<(), String> {
        let text = std::mem::take(&mut self.text);
        let number = || text.trim().parse().ok();
        match self.path.as_slice() {
            [_, Element::Response, Element::Href] => self.href = Some(path_of_href(&text)),
            [.., Element::Propstat, Element::Status] => {
                // HTTP/1.1 200 OK
                self.is_found = text.split_whitespace().nth(1) == Some("200");
            }
            [.., Element::Prop, Element::Length] => self.properties.len = number(),
            [.., Element::Prop, Element::Available] => self.properties.quota_available = number(),
            [.., Element::Prop, Element::Used] => self.properties.quota_used = number(),
            [_, Element::Response, Element::Propstat] if self.is_found => {
                let (all, found) = (&mut self.member, &self.properties);
                all.is_directory |= found.is_directory;
                all.len = all.len.or(found.len);
                all.quota_available = all.quota_available.or(found.quota_available);
                all.quota_used = all.quota_used.or(found.quota_used);
            }
            [_, Element::Response] => {
                let path = self.href.take().ok_or("a response without href")?;
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                each(Member { name, is_itself: path == asked, ..std::mem::take(&mut self.member) });
            }
            _ => {}
        }
        self.path.pop();
        Ok(())
    }
}

/// Returns a limited number of bytes and then an error, because the parser keeps the bytes of an incomplete event.
struct Bounded<R> {
    inner: R,
    left: usize,
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let come = self.fill_buf()?;
        let len = come.len().min(into.len());
        into[..len].copy_from_slice(&come[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.left == 0 {
            let text = format!("a tag or a text of more than {EVENT_MAX} bytes");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
        }
        let come = self.inner.fill_buf()?;
        Ok(&come[..come.len().min(self.left)])
    }

    fn consume(&mut self, len: usize) {
        self.left = self.left.saturating_sub(len);
        self.inner.consume(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, asked: &str) -> Result<Vec<Member>, String> {
        let mut found = Vec::new();
        read(text.as_bytes(), asked, &mut |member| found.push(member))?;
        Ok(found)
    }

    /// Like the answers of nginx and Apache, with different names for the namespace.
    const ANSWER: &str = r#"<?xml version="1.0" encoding="utf-8" ?>
        <D:multistatus xmlns:D="DAV:" xmlns:x="urn:x">
        <D:response><D:href>/data/run%201/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop>
          <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
        <D:response xmlns:lp1="DAV:"><D:href>http://h:80/data//run%201/a&amp;b</D:href>
          <D:propstat><D:prop><lp1:getcontentlength>17</lp1:getcontentlength><lp1:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>
          <D:propstat><D:prop><D:quota-used-bytes/><x:getcontentlength>3</x:getcontentlength></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>
        </D:response>
        <D:response><D:href>/data/run%201/sub/</D:href><D:propstat><D:prop><D:quota-available-bytes>5</D:quota-available-bytes>
          <D:quota-used-bytes>7</D:quota-used-bytes><D:resourcetype><D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
        </D:multistatus>"#;

    #[test]
    fn members_are_found() {
        let found = all(ANSWER, &path_of_reply("/data/run%201/")).unwrap();
        let [itself, file, directory] = found.as_slice() else { panic!("{found:?}") };
        assert!(itself.is_itself && itself.is_directory);
        let expected = Member { name: "a&b".to_owned(), len: Some(17), ..Member::default() };
        assert_eq!(*file, expected);
        assert!(directory.is_directory && !directory.is_itself && directory.name == "sub");
        assert_eq!((directory.quota_available, directory.quota_used), (Some(5), Some(7)));
    }

    #[test]
    fn invalid_answers_are_refused() {
        let said = |text: &str| all(text, "").unwrap_err();
        assert!(said("<html xmlns='DAV:'/>").contains("not a multistatus"));
        assert!(said("").contains("not a multistatus"));
        assert!(said("<multistatus xmlns='DAV:'><response>").contains("ends in the middle"));
        assert!(said("<multistatus xmlns='DAV:'><response></response></multistatus>").contains("without href"));
        assert!(!said("<multistatus xmlns='DAV:'></response></multistatus>").is_empty());
        assert!(
            said("<!DOCTYPE x [<!ENTITY e 'e'>]><multistatus xmlns='DAV:'>&e;</multistatus>").contains("entity `e`")
        );
        assert!(said(&format!("<multistatus xmlns='DAV:'>{}", "<a>".repeat(100))).contains("too deeply"));
        assert!(said(&format!("<multistatus xmlns='DAV:'>{}", "x".repeat(70_000))).contains("65536"));
        let slowly = "x&amp;".repeat(10_000);
        assert!(said(&format!("<multistatus xmlns='DAV:'>{slowly}")).contains("16384"));
    }

    #[test]
    fn answers_of_any_length_are_read_in_bounded_memory() {
        let one = "<response><href>/d/f</href></response>";
        let text = format!("<multistatus xmlns='DAV:'>{}</multistatus>", one.repeat(50_000));
        assert_eq!(all(&text, "d").unwrap().len(), 50_000);
    }
}
