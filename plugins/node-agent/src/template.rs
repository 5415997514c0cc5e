//! containerd's `conf_template`, read unchanged: the part of Go's text/template that such files use.
//!
//! The values are containerd's (its docs/cri/config.md): `.PodCIDR`, `.PodCIDRRanges` and `.Routes`. Actions are these values, `.` and
//! variables, `range` with none to two variables, `if`, `else`, `end`, comments, and `-` beside a brace, which trims space. Any other
//! action is an error with its line, as a file with a wrong range is worse than none. The crate gtmpl reads more of Go's language,
//! but its author maintains it passively, it also renders `else` of a `range` that has elements, and its lines are wrong by one.

use crate::ranges::Ranges;

/// A template that [`Template::render`] accepts any ranges for.
#[derive(Debug)]
pub struct Template(Vec<Node>);

/// A fault of a template, and its line, from 1 on.
#[derive(Debug, PartialEq, Eq)]
pub struct TemplateError {
    pub line: usize,
    pub text: String,
}

#[derive(Debug)]
enum Node {
    Text(String),
    Put(Operand),
    If { condition: Operand, then: Vec<Node>, otherwise: Vec<Node> },
    Range { variables: Vec<String>, list: List, each: Vec<Node>, otherwise: Vec<Node> },
}

#[derive(Debug)]
enum Operand {
    PodCidr,
    List(List),
    Dot,
    Variable(String),
}

#[derive(Debug, Clone, Copy)]
enum List {
    PodCidrRanges,
    Routes,
}

/// An element of the language: text, or the words between two pairs of braces.
enum Token {
    Text(String),
    Action { line: usize, words: Vec<String> },
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// The first action that is not among those of this module, or a block that does not end.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parser = Parser { tokens: tokens(text)?.into_iter(), variables: Vec::new(), ranges: 0 };
        let (nodes, end) = parser.block()?;
        match end {
            None => Ok(Self(nodes)),
            Some((line, word)) => Err(error(line, format!("{{{{{word}}}}} without if or range"))),
        }
    }

    /// The text for these ranges.
    #[must_use]
    pub fn render(&self, ranges: &Ranges) -> String {
        let mut text = String::new();
        let cidrs = ranges.iter().map(ToString::to_string).collect();
        Values { cidrs, routes: ranges.default_routes() }.put(&self.0, &mut Vec::new(), &mut text);
        text
    }
}

fn error(line: usize, text: impl Into<String>) -> TemplateError {
    TemplateError { line, text: text.into() }
}

fn tokens(template: &str) -> Result<Vec<Token>, TemplateError> {
    let mut tokens = Vec::new();
    let (mut rest, mut trims) = (template, false);
    loop {
        let text = if trims { rest.trim_start() } else { rest };
        let Some((text, action)) = text.split_once("{{") else {
            tokens.push(Token::Text(text.to_owned()));
            return Ok(tokens);
        };
        let line = 1 + template[..template.len() - action.len()].matches('\n').count();
        let trimmed = action.strip_prefix('-').filter(|after| after.starts_with(char::is_whitespace));
        tokens.push(Token::Text(if trimmed.is_some() { text.trim_end() } else { text }.to_owned()));
        let action = trimmed.map_or(action, str::trim_start);
        // Braces in a comment do not end it.
        let comment = if action.starts_with("/*") { action.find("*/") } else { Some(0) };
        let comment = comment.ok_or_else(|| error(line, "a comment does not end"))?;
        let end = action[comment..].find("}}").ok_or_else(|| error(line, "{{ without }}"))? + comment;
        let inside = &action[..end];
        rest = &action[end + 2..];
        let kept = inside.strip_suffix('-').filter(|before| before.ends_with(char::is_whitespace));
        trims = kept.is_some();
        let inside = kept.unwrap_or(inside);
        if !inside.starts_with("/*") {
            let inside = inside.replace(',', " , ").replace(":=", " := ");
            tokens.push(Token::Action { line, words: inside.split_whitespace().map(str::to_owned).collect() });
        } else if !inside.trim_end().ends_with("*/") {
            return Err(error(line, "a comment is alone between its braces"));
        }
    }
}

struct Parser<I> {
    tokens: I,
    /// The variables of the blocks around, the innermost last.
    variables: Vec<String>,
    /// The number of ranges around: in one, `.` is its element.
    ranges: usize,
}

/// The line and the word of an action that ends a block; `None`: the template's end.
type End = Option<(usize, String)>;

impl<I: Iterator<Item = Token>> Parser<I> {
    /// Reads up to the action that ends a block.
    fn block(&mut self) -> Result<(Vec<Node>, End), TemplateError> {
        let mut nodes = Vec::new();
        while let Some(token) = self.tokens.next() {
            let (line, words) = match token {
                Token::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Token::Action { line, words } => (line, words),
            };
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            nodes.push(match words.as_slice() {
                [word @ ("end" | "else")] => return Ok((nodes, Some((line, (*word).to_owned())))),
                ["if", condition] => {
                    let condition = self.operand(line, condition)?;
                    let (then, otherwise) = self.branches(line, "if")?;
                    Node::If { condition, then, otherwise }
                }
                ["range", list] => self.range(line, &[], list)?,
                ["range", item, ":=", list] => self.range(line, &[item], list)?,
                ["range", index, ",", item, ":=", list] => self.range(line, &[index, item], list)?,
                [operand] => match self.operand(line, operand)? {
                    Operand::List(_) => return Err(error(line, format!("{operand} is a list: range over it"))),
                    single => Node::Put(single),
                },
                other => return Err(unsupported(line, &other.join(" "))),
            });
        }
        Ok((nodes, None))
    }

    /// Reads the two branches of a block; the second one is empty without `else`.
    fn branches(&mut self, opened: usize, what: &str) -> Result<(Vec<Node>, Vec<Node>), TemplateError> {
        let unended = || error(opened, format!("{{{{{what}}}}} without {{{{end}}}}"));
        let (first, end) = self.block()?;
        let (_, word) = end.ok_or_else(unended)?;
        if word == "end" {
            return Ok((first, Vec::new()));
        }
        let (second, end) = self.block()?;
        match end.ok_or_else(unended)? {
            (_, word) if word == "end" => Ok((first, second)),
            (line, _) => Err(error(line, format!("a second {{{{else}}}} of one {what}"))),
        }
    }

    fn range(&mut self, line: usize, variables: &[&&str], list: &str) -> Result<Node, TemplateError> {
        let Operand::List(list) = self.operand(line, list)? else {
            return Err(error(line, format!("{list} is no list: range is for .PodCIDRRanges and .Routes")));
        };
        if let Some(wrong) = variables.iter().find(|name| !is_variable(name)) {
            return Err(error(line, format!("{wrong} is no name of a variable")));
        }
        let outer = self.variables.len();
        self.variables.extend(variables.iter().map(|name| (**name).to_owned()));
        self.ranges += 1;
        let (each, otherwise) = self.branches(line, "range")?;
        self.ranges -= 1;
        let variables = self.variables.split_off(outer);
        Ok(Node::Range { variables, list, each, otherwise })
    }

    fn operand(&self, line: usize, word: &str) -> Result<Operand, TemplateError> {
        match word {
            "." if self.ranges > 0 => Ok(Operand::Dot),
            "." => Err(error(line, ". outside of range has no text")),
            ".PodCIDR" | ".PodCIDRRanges" | ".Routes" if self.ranges > 0 => {
                Err(error(line, format!("{word} in a range: there . is one element of the list")))
            }
            ".PodCIDR" => Ok(Operand::PodCidr),
            ".PodCIDRRanges" => Ok(Operand::List(List::PodCidrRanges)),
            ".Routes" => Ok(Operand::List(List::Routes)),
            name if self.variables.iter().any(|known| known == name) => Ok(Operand::Variable(name.to_owned())),
            name if is_variable(name) => Err(error(line, format!("no range around has the variable {name}"))),
            other => Err(unsupported(line, other)),
        }
    }
}

fn is_variable(name: &str) -> bool {
    let letters = name.strip_prefix('$').unwrap_or_default();
    !letters.is_empty() && letters.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

fn unsupported(line: usize, action: &str) -> TemplateError {
    error(
        line,
        format!(
            "{{{{{action}}}}} is not supported: values are .PodCIDR, .PodCIDRRanges and .Routes, actions range, if, else and end"
        ),
    )
}

struct Values {
    cidrs: Vec<String>,
    routes: Vec<String>,
}

/// A value of a range's variable.
#[derive(Clone)]
enum Value {
    Index(usize),
    Item(String),
}

/// The variables of the ranges around, and the element of each, by the name `.`.
type Scope = Vec<(String, Value)>;

impl Values {
    fn put(&self, nodes: &[Node], scope: &mut Scope, text: &mut String) {
        for node in nodes {
            match node {
                Node::Text(own) => text.push_str(own),
                Node::Put(operand) => text.push_str(&self.text(operand, scope)),
                Node::If { condition, then, otherwise } => {
                    let branch = if self.is_true(condition, scope) { then } else { otherwise };
                    self.put(branch, scope, text);
                }
                Node::Range { list, otherwise, .. } if self.list(*list).is_empty() => self.put(otherwise, scope, text),
                Node::Range { variables, list, each, .. } => {
                    for (index, item) in self.list(*list).iter().enumerate() {
                        let outer = scope.len();
                        let item = Value::Item(item.clone());
                        scope.push((".".to_owned(), item.clone()));
                        // One variable is the element; of two the first is its index.
                        let values = [Value::Index(index), item];
                        scope.extend(variables.iter().rev().cloned().zip(values.into_iter().rev()));
                        self.put(each, scope, text);
                        scope.truncate(outer);
                    }
                }
            }
        }
    }

    fn list(&self, list: List) -> &[String] {
        match list {
            List::PodCidrRanges => &self.cidrs,
            List::Routes => &self.routes,
        }
    }

    fn find<'a>(operand: &Operand, scope: &'a Scope) -> Option<&'a Value> {
        let name = match operand {
            Operand::Dot => ".",
            Operand::Variable(name) => name,
            Operand::PodCidr | Operand::List(_) => return None,
        };
        scope.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn text(&self, operand: &Operand, scope: &Scope) -> String {
        match Self::find(operand, scope) {
            Some(Value::Index(index)) => index.to_string(),
            Some(Value::Item(item)) => item.clone(),
            None => self.cidrs.first().cloned().unwrap_or_default(),
        }
    }

    /// Go's truth: a number is not 0, a text or a list is not empty.
    fn is_true(&self, operand: &Operand, scope: &Scope) -> bool {
        match (operand, Self::find(operand, scope)) {
            (Operand::List(list), _) => !self.list(*list).is_empty(),
            (_, Some(Value::Index(index))) => *index != 0,
            (_, Some(Value::Item(item))) => !item.is_empty(),
            (_, None) => !self.cidrs.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str) -> Result<String, TemplateError> {
        let ranges = Ranges::parse(["10.1.0.0/24", "fd00:1::/64"]).expect("the ranges are valid");
        Template::parse(template).map(|template| template.render(&ranges))
    }

    #[test]
    fn what_containerd_documents_is_rendered_as_go_does() {
        for (template, wanted) in [
            ("{{.PodCIDR}}", "10.1.0.0/24"),
            (
                r#"[{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}]"#,
                r#"[[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]"#,
            ),
            (
                r#"[{{range $i, $route := .Routes}}{{if $i}}, {{end}}{"dst": "{{$route}}"}{{end}}]"#,
                r#"[{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]"#,
            ),
            ("{{range .Routes}}<{{.}}>{{else}}none{{end}}", "<0.0.0.0/0><::/0>"),
            ("{{range $r:=.Routes}}{{$r}} {{end}}", "0.0.0.0/0 ::/0 "),
            ("a \n {{- /* why }} */ -}} \n b", "ab"),
            ("{{ if .Routes }}é{{ else }}no{{ end }}", "é"),
            ("x\n  {{- range $i, $r := .Routes }}\n  {{ $i }}\n  {{- end }}\n", "x\n  0\n  1\n"),
            ("}} {", "}} {"),
        ] {
            assert_eq!(rendered(template).as_deref(), Ok(wanted), "{template}");
        }
    }

    #[test]
    fn an_action_that_is_not_supported_is_an_error_with_its_line() {
        for (template, line, text) in [
            ("\n\n{{.Node}}", 3, "{{.Node}} is not supported"),
            ("{{len .Routes}}", 1, "{{len .Routes}} is not supported"),
            ("{{.PodCIDR | printf \"%q\"}}", 1, "is not supported"),
            ("{{.Routes}}", 1, ".Routes is a list: range over it"),
            ("{{range .PodCIDR}}{{end}}", 1, ".PodCIDR is no list"),
            ("{{range .Routes}}\n{{.PodCIDR}}{{end}}", 2, "there . is one element"),
            ("{{range $i, $r := .Routes}}{{end}}\n{{$i}}", 2, "no range around has the variable $i"),
            ("{{range i := .Routes}}{{end}}", 1, "i is no name of a variable"),
            ("\n{{if .PodCIDR}}", 2, "{{if}} without {{end}}"),
            ("{{range .Routes}}{{else}}", 1, "{{range}} without {{end}}"),
            ("{{if .PodCIDR}}{{else}}\n{{else}}{{end}}", 2, "a second {{else}}"),
            ("{{end}}", 1, "{{end}} without if or range"),
            ("{{.}}", 1, ". outside of range"),
            ("{{.PodCIDR", 1, "{{ without }}"),
            ("{{/* {{.PodCIDR}}", 1, "a comment does not end"),
            ("{{/* a */ .PodCIDR}}", 1, "a comment is alone"),
            ("{{}}", 1, "{{}} is not supported"),
        ] {
            let error = rendered(template).expect_err(template);
            assert!(error.line == line && error.text.contains(text), "{template}: {error:?}");
        }
    }
}
