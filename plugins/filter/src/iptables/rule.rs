//! A rule of iptables as data, and its words: those that iptables-save prints and iptables-restore reads.

use std::fmt;
use std::net::SocketAddr;

use ipnetwork::IpNetwork;

/// What a rule looks at and what it does then. Two that are equal do the same, however each is encoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// `-s`: the sender.
    pub source: Option<Is<IpNetwork>>,
    /// `-d`: the receiver.
    pub destination: Option<Is<IpNetwork>>,
    /// `-i`: the interface a packet came in by; a name that ends in `+` stands for all that start so.
    pub input: Option<Is<String>>,
    /// `-o`: the interface it leaves by.
    pub output: Option<Is<String>>,
    /// `-p`.
    pub protocol: Option<Protocol>,
    /// `-m comment --comment`: at most 255 bytes.
    pub comment: Option<String>,
    /// `--dport`; needs a protocol.
    pub port: Option<u16>,
    /// `-m multiport --dports`: 1 to 15 ports, none if empty; needs a protocol.
    pub ports: Vec<u16>,
    /// `-m addrtype --dst-type LOCAL`: to an address of the node.
    pub to_local: bool,
    /// `-m conntrack --ctstate RELATED,ESTABLISHED`: an answer, or what belongs to a connection.
    pub established: bool,
    /// `-m mark --mark`.
    pub mark: Option<Masked>,
    /// Further words of iptables, such as an administrator's own conditions. Only its programs can write them
    /// ([`crate::Filter::iptables_by_program`]), and such a rule is not decoded when it is read back; [`Rule::parse`] tells
    /// whether they are needed.
    pub words: Vec<String>,
    /// `-j`.
    pub target: Target,
}

/// A value that must be, or must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Is<T> {
    /// The value.
    pub value: T,
    /// `!`: all but this.
    pub negated: bool,
}

/// The value itself.
pub fn is<T>(value: T) -> Option<Is<T>> {
    Some(Is { value, negated: false })
}

/// All but the value.
pub fn is_not<T>(value: T) -> Option<Is<T>> {
    Some(Is { value, negated: true })
}

/// A transport protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
    /// SCTP.
    Sctp = 132,
}

/// Some bits of a packet's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masked {
    /// The bits.
    pub value: u32,
    /// Which bits count.
    pub mask: u32,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Target {
    /// It goes on to the next rule.
    #[default]
    None,
    /// It goes through that chain, and comes back.
    Jump(String),
    /// `ACCEPT`.
    Accept,
    /// `DROP`.
    Drop,
    /// `RETURN`.
    Return,
    /// `MASQUERADE`.
    Masquerade,
    /// `DNAT --to-destination`; port 0 leaves the port as it is.
    Dnat(SocketAddr),
    /// `MARK --set-xmark`: the bits of the mask become those of the value.
    SetMark(Masked),
}

impl Protocol {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// `tcp`, as the option and the match are called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl Rule {
    /// A rule that jumps to this chain.
    #[must_use]
    pub fn jump(chain: impl Into<String>) -> Self {
        Self { target: Target::Jump(chain.into()), ..Self::default() }
    }

    /// Reads the words behind `-A CHAIN`, as `iptables-save` prints them; `None` if a rule cannot say all of it without
    /// [`Rule::words`].
    #[must_use]
    pub fn parse(words: &str) -> Option<Self> {
        super::parse::rule(&format!("CHAIN {words}"))
    }

    /// The chain it jumps to.
    #[must_use]
    pub fn goes_to(&self) -> Option<&str> {
        match &self.target {
            Target::Jump(chain) => Some(chain),
            Target::None
            | Target::Accept
            | Target::Drop
            | Target::Return
            | Target::Masquerade
            | Target::Dnat(_)
            | Target::SetMark(_) => None,
        }
    }
}

/// The words behind `-A CHAIN`, each with a space before it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        option(f, "-s", self.source.as_ref())?;
        option(f, "-d", self.destination.as_ref())?;
        option(f, "-i", self.input.as_ref())?;
        option(f, "-o", self.output.as_ref())?;
        if let Some(protocol) = self.protocol {
            write!(f, " -p {}", protocol.name())?;
        }
        if let Some(comment) = &self.comment {
            write!(f, " -m comment --comment {}", Quoted(comment))?;
        }
        if let (Some(port), Some(protocol)) = (self.port, self.protocol) {
            write!(f, " -m {} --dport {port}", protocol.name())?;
        }
        if !self.ports.is_empty() {
            let ports: Vec<_> = self.ports.iter().map(u16::to_string).collect();
            write!(f, " -m multiport --dports {}", ports.join(","))?;
        }
        if self.to_local {
            f.write_str(" -m addrtype --dst-type LOCAL")?;
        }
        if self.established {
            f.write_str(" -m conntrack --ctstate RELATED,ESTABLISHED")?;
        }
        if let Some(mark) = self.mark {
            write!(f, " -m mark --mark {mark}")?;
        }
        for word in &self.words {
            match &**word {
                "!" => f.write_str(" !")?,
                word => write!(f, " {}", Quoted(word))?,
            }
        }
        self.target.fmt(f)
    }
}

fn option<T: fmt::Display>(f: &mut fmt::Formatter<'_>, name: &str, is: Option<&Is<T>>) -> fmt::Result {
    match is {
        Some(Is { value, negated: false }) => write!(f, " {name} {value}"),
        Some(Is { value, negated: true }) => write!(f, " ! {name} {value}"),
        None => Ok(()),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Jump(chain) => write!(f, " -j {chain}"),
            Self::Accept => f.write_str(" -j ACCEPT"),
            Self::Drop => f.write_str(" -j DROP"),
            Self::Return => f.write_str(" -j RETURN"),
            Self::Masquerade => f.write_str(" -j MASQUERADE"),
            Self::Dnat(to) if to.port() == 0 => write!(f, " -j DNAT --to-destination {}", to.ip()),
            Self::Dnat(to) => write!(f, " -j DNAT --to-destination {to}"),
            Self::SetMark(bits) => write!(f, " -j MARK --set-xmark {:#x}/{:#x}", bits.value, bits.mask),
        }
    }
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mask {
            u32::MAX => write!(f, "{:#x}", self.value),
            mask => write!(f, "{:#x}/{mask:#x}", self.value),
        }
    }
}

/// A text as one word: in quotes unless it has letters, digits, `-` and `_` only, and without a way out of them.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !self.0.is_empty() && self.0.bytes().all(is_plain) {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' | '\'' => write!(f, "\\{character}")?,
                // Restore reads lines.
                control if control.is_control() => f.write_str(" ")?,
                other => write!(f, "{other}")?,
            }
        }
        f.write_str("\"")
    }
}

/// What fits into a comment: `struct xt_comment_info` has 256 bytes with the final NUL.
#[must_use]
pub fn comment(text: &str) -> String {
    let end = text.floor_char_boundary(255);
    text.get(..end).unwrap_or_default().replace(char::is_control, " ")
}
