//! A rule of iptables as data, and its text form, which iptables-save prints and iptables-restore reads.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

/// The conditions and the target of a rule. Two equal rules do the same, however each is encoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// `-s`: the source address.
    pub source: Option<Is<IpNetwork>>,
    /// `-d`: the destination address.
    pub destination: Option<Is<IpNetwork>>,
    /// `-i`: the incoming interface. A name that ends in `+` matches all names that start with it.
    pub input: Option<Is<String>>,
    /// `-o`: the outgoing interface.
    pub output: Option<Is<String>>,
    /// `-p`.
    pub protocol: Option<Protocol>,
    /// `-m comment --comment`: at most 255 bytes.
    pub comment: Option<String>,
    /// `--dport`; needs a protocol.
    pub port: Option<u16>,
    /// `-m multiport --dports`: 1 to 15 ports, none if empty; needs a protocol.
    pub ports: Vec<u16>,
    /// `-m addrtype --dst-type LOCAL`: the destination is an address of the node.
    pub to_local: bool,
    /// `-m conntrack --ctstate RELATED,ESTABLISHED`: the packet belongs to an existing connection or is related to one.
    pub established: bool,
    /// `-m conntrack --ctstate DNAT`: the connection's destination was translated. For iptables' own tables.
    pub translated: bool,
    /// `-m mark --mark`.
    pub mark: Option<Masked>,
    /// Further options of iptables, such as an administrator's own conditions. Only its programs can write them
    /// ([`crate::Filter::place_of_programs`]), and such a rule is not decoded when it is read back. [`Rule::parse`]
    /// shows whether they are needed.
    pub words: Vec<String>,
    /// `-j`.
    pub target: Target,
}

/// A condition on a value, possibly negated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Is<T> {
    /// The value.
    pub value: T,
    /// Whether the condition is negated (`!`).
    pub negated: bool,
}

impl Is<IpNetwork> {
    /// The only address that fulfils the condition; `None` if there are more, or it is negated.
    pub fn host(&self) -> Option<IpAddr> {
        let bits = if self.value.is_ipv4() { 32 } else { 128 };
        (!self.negated && self.value.prefix() == bits).then(|| self.value.ip())
    }
}

/// The condition that the value is this one.
pub fn is<T>(value: T) -> Option<Is<T>> {
    Some(Is { value, negated: false })
}

/// The condition that the value is any other.
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
    /// DCCP.
    Dccp = 33,
    /// SCTP.
    Sctp = 132,
}

/// Some bits of a packet's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masked {
    /// The bits' value.
    pub value: u32,
    /// The mask: which bits are compared or set.
    pub mask: u32,
}

/// The target of a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Target {
    /// No verdict: the packet continues at the next rule.
    #[default]
    None,
    /// Jumps to that chain, which returns here at its end.
    Jump(String),
    /// `ACCEPT`.
    Accept,
    /// `DROP`.
    Drop,
    /// `REJECT`: drops, and answers the sender. Only read: a rule of another program, with whichever answer.
    Reject,
    /// `RETURN`.
    Return,
    /// `MASQUERADE`.
    Masquerade,
    /// `DNAT --to-destination`; port 0 leaves the port unchanged.
    Dnat(SocketAddr),
    /// `MARK --set-xmark`: sets the bits of the mask to those of the value.
    SetMark(Masked),
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Udp, Self::Dccp, Self::Sctp];

    /// The name of the protocol option and of the match: `tcp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Dccp => "dccp",
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

    /// Parses the words after `-A CHAIN`, as `iptables-save` prints them; `None` if the rule cannot be expressed
    /// without [`Rule::words`].
    #[must_use]
    pub fn parse(words: &str) -> Option<Self> {
        super::parse::rule(&format!("CHAIN {words}"))
    }

    /// The rule as iptables stores it and reads it back: bits of an address after its prefix are 0, and what matches any
    /// address or interface is no condition.
    #[must_use]
    pub fn as_stored(&self) -> Self {
        super::native::spelled_by_iptables(self)
    }

    /// The chain it jumps to.
    #[must_use]
    pub fn goes_to(&self) -> Option<&str> {
        match &self.target {
            Target::Jump(chain) => Some(chain),
            Target::None
            | Target::Accept
            | Target::Drop
            | Target::Reject
            | Target::Return
            | Target::Masquerade
            | Target::Dnat(_)
            | Target::SetMark(_) => None,
        }
    }
}

/// The words after `-A CHAIN`, each after a space.
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
        if self.translated {
            f.write_str(" -m conntrack --ctstate DNAT")?;
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
            Self::Reject => f.write_str(" -j REJECT"),
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

/// A text as one word: in quotes unless it consists of letters, digits, `-` and `_`. Special characters are escaped.
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
                // Control characters become spaces, because restore reads lines.
                control if control.is_control() => f.write_str(" ")?,
                other => write!(f, "{other}")?,
            }
        }
        f.write_str("\"")
    }
}

/// Cuts a comment to the size of `struct xt_comment_info`: 256 bytes with the final NUL.
#[must_use]
pub fn comment(text: &str) -> String {
    let end = text.floor_char_boundary(255);
    text.get(..end).unwrap_or_default().replace(char::is_control, " ")
}
