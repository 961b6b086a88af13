//! The screen: its content, and the effect of keys.

use fairlift_lab::report::printable;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Wrap};
use serde_json::Value;

use super::super::tables;
use super::rows::{self, Sort};

/// Disks that are shown at most on a screen.
const DISKS: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Does {
    Ignore,
    Quit,
    Why(String),
}

#[derive(Default)]
pub(super) struct Top {
    answer: Value,
    /// The tenants that the filter lets through, in order.
    rows: Vec<Value>,
    sort: Sort,
    is_reversed: bool,
    filter: String,
    /// Whether letters go to the filter.
    is_typing: bool,
    is_paused: bool,
    /// The tenant and disk of the line that is chosen.
    chosen: Option<[Value; 2]>,
    /// How many tenants lines there were when it was drawn last.
    page: usize,
    /// The server's answer to why.
    pub(super) why: Option<String>,
    /// Why the server does not answer.
    pub(super) trouble: Option<String>,
}

impl Top {
    pub(super) fn new(sort: Sort, filter: Option<String>) -> Self {
        Self { sort, filter: filter.unwrap_or_default(), ..Self::default() }
    }

    pub(super) fn take(&mut self, answer: Value) {
        self.trouble = None;
        if !self.is_paused {
            self.answer = answer;
            self.arrange();
        }
    }

    fn arrange(&mut self) {
        let tenants = tables::list(&self.answer["tenants"]);
        self.rows = tenants.iter().filter(|row| rows::holds(row, &self.filter)).cloned().collect();
        rows::sort(&mut self.rows, self.sort, self.is_reversed);
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Does {
        if key.kind == KeyEventKind::Release {
            return Does::Ignore;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Does::Quit;
        }
        if self.is_typing {
            match key.code {
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(letter) => self.filter.push(letter),
                _ => {}
            }
            self.arrange();
            return Does::Ignore;
        }
        match key.code {
            KeyCode::Char('q') => return Does::Quit,
            KeyCode::Char('/') => {
                self.is_typing = true;
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char(letter) => {
                if let Some(sort) = Sort::of_key(letter) {
                    self.is_reversed = sort == self.sort && !self.is_reversed;
                    self.sort = sort;
                    self.arrange();
                }
            }
            KeyCode::Esc if self.why.is_some() => self.why = None,
            KeyCode::Esc => {
                self.filter.clear();
                self.chosen = None;
                self.arrange();
            }
            KeyCode::Down => self.go(|at, _| at + 1),
            KeyCode::Up => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::PageDown => self.go(|at, page| at + page),
            KeyCode::PageUp => self.go(|at, page| at.saturating_sub(page)),
            KeyCode::Home => self.go(|_, _| 0),
            KeyCode::End => self.go(|_, _| usize::MAX),
            KeyCode::Enter => {
                let row = self.rows.get(self.at().unwrap_or(0));
                if let Some(export) = row.and_then(|row| row["exports"][0].as_str()) {
                    self.why = Some(format!("{export}: looking for a second…"));
                    return Does::Why(export.to_owned());
                }
            }
            _ => {}
        }
        Does::Ignore
    }

    /// The line that is chosen.
    fn at(&self) -> Option<usize> {
        let [path, disk] = self.chosen.as_ref()?;
        self.rows.iter().position(|row| row["path"] == *path && row["disk"] == *disk)
    }

    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        let at = match self.at() {
            Some(at) => to(at, self.page.max(1)),
            None => 0,
        };
        let row = self.rows.get(at.min(self.rows.len().saturating_sub(1)));
        self.chosen = row.map(|row| ["path", "disk"].map(|key| row[key].clone()));
    }

    /// All of it, as `--once` prints it: as wide as the longest name needs.
    pub(super) fn text(&self) -> String {
        let widths = rows::widths(&self.rows, usize::MAX);
        let mut lines = vec![self.head()];
        lines.extend(self.disks(usize::MAX, usize::MAX));
        lines.extend([String::new(), rows::heads(&widths)]);
        lines.extend(self.rows.iter().map(|row| rows::line(row, &widths)));
        lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }

    fn head(&self) -> String {
        let count = |name: &str| tables::text(&self.answer[name]);
        let tenants = tables::list(&self.answer["tenants"]).len();
        let shown = if self.filter.is_empty() && !self.is_typing {
            format!("{tenants} tenants")
        } else {
            format!("{} of {tenants} tenants with \"{}\"", self.rows.len(), self.filter)
        };
        format!("fairlift: {shown}, {} connections, config version {}", count("connections"), count("version"))
    }

    fn disks(&self, most: usize, width: usize) -> Vec<String> {
        let disks = tables::list(&self.answer["disks"]);
        let longest = disks.iter().map(|disk| rows::columns(&tables::text(&disk["name"]))).max().unwrap_or(0);
        let name = longest.clamp(14, width.saturating_sub(66).max(14)); // of what the others leave
        let mut lines = vec![format!(
            "{:name$} {:12} {:>5} {:>6} {:>6} {:>9} {:>8} {:>6} {:>6}",
            "DISK", "SCHEDULER", "BUSY", "FLUSH", "IDLING", "IN FLIGHT", "WAITING", "IOPS", "MB/s"
        )];
        lines.extend(disks.iter().take(most).map(|disk| {
            let part = |name: &str| tables::number(&disk[name], rows::percent);
            format!(
                "{} {} {:>5} {:>6} {:>6} {:>9} {:>8} {:>6} {:>6}",
                rows::fit(&tables::text(&disk["name"]), name),
                rows::fit(&tables::text(&disk["scheduler"]), 12),
                part("busy"),
                part("flushing"),
                part("idling"),
                format!("{}/{}", tables::text(&disk["in_flight"]), tables::text(&disk["depth"])),
                tables::text(&disk["waiting"]),
                tables::number(&disk["iops"], tables::short),
                tables::rate(&disk["bps"]),
            )
        }));
        if disks.len() > most {
            lines.push(format!("and {} more disks", disks.len() - most));
        }
        lines
    }

    fn foot(&self) -> String {
        if let Some(trouble) = &self.trouble {
            return format!("{trouble}; asking again");
        }
        if self.is_typing {
            return format!("tenants, disks or causes with: {}_   Enter keeps it, Esc ends it", self.filter);
        }
        let paused = if self.is_paused { "PAUSED  " } else { "" };
        format!("{paused}sort: h)ad r)ate p)99 s)core w)ait n)ame  /filter  Enter why  space pause  q)uit")
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let (area, width) = (frame.area(), usize::from(frame.area().width));
        let [body, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
        let (plain, bold, reversed) = (Modifier::empty(), Modifier::BOLD, Modifier::REVERSED);
        let mut lines = vec![Line::styled(self.head(), bold), Line::raw("")];
        let style = |at| if at == 0 { bold } else { plain };
        lines.extend(self.disks(DISKS, width).into_iter().enumerate().map(|(at, line)| Line::styled(line, style(at))));
        let widths = rows::widths(&self.rows, width);
        lines.extend([Line::raw(""), Line::styled(rows::heads(&widths), reversed)]);
        self.page = usize::from(body.height).saturating_sub(lines.len()).max(1);
        let at = self.at();
        // The line that is chosen is on the screen.
        let first = at.map_or(0, |at| (at + 1).saturating_sub(self.page));
        for (number, row) in self.rows.iter().enumerate().skip(first).take(self.page) {
            let style = match (Some(number) == at, row["short"] == true) {
                (true, _) => reversed,
                (false, true) => bold,
                (false, false) => plain,
            };
            lines.push(Line::styled(rows::line(row, &widths), style));
        }
        frame.render_widget(Paragraph::new(lines), body);
        frame.render_widget(Line::styled(self.foot(), reversed), foot);
        if let Some(why) = &self.why {
            let text = why.lines().map(|line| Line::raw(printable(line))).collect::<Vec<_>>();
            let height = body.height.saturating_sub(1).min(10);
            let place = Rect { y: body.bottom().saturating_sub(height), height, ..body };
            let block = Block::new().borders(Borders::TOP).title(" why (Esc closes) ");
            frame.render_widget(Clear, place);
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The answer of a server with three tenants, one of them with a name that would clear the screen.
    const ANSWER: &str = include_str!("answer.json");

    fn top() -> Top {
        let mut top = Top::new(Sort::Had, None);
        top.take(serde_json::from_str(ANSWER).unwrap());
        top
    }

    fn screen(top: &mut Top, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| top.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn press(top: &mut Top, keys: &str) -> Does {
        let mut does = Does::Ignore;
        for letter in keys.chars() {
            let code = match letter {
                '↵' => KeyCode::Enter,
                '⎋' => KeyCode::Esc,
                '↓' => KeyCode::Down,
                '⇟' => KeyCode::PageDown,
                other => KeyCode::Char(other),
            };
            does = top.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        does
    }

    /// The first words of the lines of tenants.
    fn names(top: &mut Top) -> Vec<String> {
        let lines = screen(top, 80, 24);
        let first = lines.iter().position(|line| line.starts_with("TENANT")).unwrap() + 1;
        let lines = lines[first..23].iter().take_while(|line| !line.is_empty());
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_screen_of_80_by_24_has_all_of_a_tenant() {
        let lines = screen(&mut top(), 80, 24);
        assert_eq!(
            lines[..9],
            [
                "fairlift: 4 tenants, 3 connections, config version 7",
                "",
                "DISK           SCHEDULER     BUSY  FLUSH IDLING IN FLIGHT  WAITING   IOPS   MB/s",
                "ssd0           fair           97%     2%     0%     32/32       85  28.1k  115.2",
                "",
                "TENANT           DISK    HAD  DUE BY     SCORE   IOPS   MB/s    P99 WAITS FOR",
                "/bob             ssd0    71%  50% weight  1.42  20.0k   81.9  9.1ms own 88%",
                "/alice           ssd0    29%  50% weight  0.58   8100   33.2  3.6ms others 71%",
                "/carol\u{fffd}[2J       ssd0     0%    - -          -      0    0.0      -",
            ]
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        assert!(lines[23].starts_with("sort: h)ad"), "{lines:?}");
    }

    #[test]
    fn a_long_name_of_a_disk_has_the_columns_that_are_free() {
        let mut top = top();
        let mut answer = top.answer.clone();
        answer["disks"][0]["name"] = "the-image-of-alice.img".into();
        top.take(answer);
        let shown = |lines: Vec<String>| lines[3].split_whitespace().next().unwrap().to_owned();
        assert_eq!(shown(screen(&mut top, 110, 24)), "the-image-of-alice.img");
        let narrow = screen(&mut top, 84, 24);
        assert_eq!(narrow[3].chars().count(), 84);
        assert_eq!(shown(narrow), "…mage-of-alice.img");
    }

    #[test]
    fn keys_sort_and_sort_the_other_way_round() {
        let mut top = top();
        assert_eq!(names(&mut top)[0], "/bob", "by had");
        press(&mut top, "p");
        assert_eq!(names(&mut top)[..2], ["/bob", "/alice"], "by p99");
        press(&mut top, "s");
        assert_eq!(names(&mut top)[..2], ["/alice", "/bob"], "the least score first");
        press(&mut top, "n");
        assert_eq!(names(&mut top)[0], "/alice");
        press(&mut top, "n");
        assert_eq!(names(&mut top)[3], "/alice", "reversed");
        press(&mut top, "w");
        assert_eq!(names(&mut top)[..2], ["/alice", "/bob"], "others, own, nothing");
        press(&mut top, "r");
        assert_eq!(names(&mut top)[0], "/bob");
    }

    #[test]
    fn a_filter_is_typed_and_ended() {
        let mut top = top();
        press(&mut top, "/ALI");
        assert_eq!(names(&mut top), ["/alice"]);
        assert!(screen(&mut top, 80, 24)[0].contains("1 of 4 tenants with \"ALI\""));
        press(&mut top, "q↵");
        assert_eq!(names(&mut top), [""; 0], "q is a letter of it");
        press(&mut top, "⎋");
        assert_eq!(names(&mut top).len(), 4);
        press(&mut top, "/others↵");
        assert_eq!(names(&mut top), ["/alice"], "by what it waits for");
        assert_eq!(press(&mut top, "q"), Does::Quit);
    }

    #[test]
    fn enter_asks_why_of_the_line_that_is_chosen() {
        let mut top = top();
        assert_eq!(press(&mut top, "↓↓↵"), Does::Why("alice".into()));
        top.why = Some("alice: 71 % of its time is the share of /bob\n".into());
        let lines = screen(&mut top, 80, 24);
        assert!(lines.iter().any(|line| line.starts_with("alice: 71 %")), "{lines:?}");
        press(&mut top, "⎋");
        assert!(!screen(&mut top, 80, 24).iter().any(|line| line.starts_with("alice: 71 %")));
        press(&mut top, "s");
        assert_eq!(press(&mut top, "↵"), Does::Why("alice".into()), "the choice stays with the tenant");
    }

    #[test]
    fn many_tenants_are_walked_through_and_a_small_screen_is_no_panic() {
        let mut answer: Value = serde_json::from_str(ANSWER).unwrap();
        let one = answer["tenants"][0].clone();
        let many = (0..1000).map(|number| {
            let mut tenant = one.clone();
            tenant["path"] = format!("/t{number:04}").into();
            tenant
        });
        answer["tenants"] = many.collect();
        let mut top = top();
        top.take(answer);
        press(&mut top, "n");
        assert_eq!(names(&mut top).len(), 17);
        press(&mut top, "↓⇟⇟");
        assert!(names(&mut top).contains(&"/t0034".to_owned()), "{:?}", names(&mut top));
        for (width, height) in [(1, 1), (5, 3), (20, 8), (200, 60)] {
            screen(&mut top, width, height);
            top.why = Some("why".into());
            screen(&mut top, width, height);
        }
    }

    #[test]
    fn a_server_that_is_gone_is_told_and_the_figures_stay() {
        let mut top = top();
        top.trouble = Some("no server answers".into());
        let lines = screen(&mut top, 80, 24);
        assert!(lines[23].starts_with("no server answers; asking again") && lines[6].starts_with("/bob"), "{lines:?}");
        press(&mut top, " ");
        top.take(Value::Null);
        assert!(screen(&mut top, 80, 24)[23].starts_with("PAUSED"));
        assert_eq!(names(&mut top).len(), 4, "nothing moves");
    }

    #[test]
    fn what_is_printed_has_every_tenant_and_whole_names() {
        let mut answer: Value = serde_json::from_str(ANSWER).unwrap();
        answer["tenants"][0]["path"] = format!("/{}", "long".repeat(20)).into();
        let mut top = top();
        top.take(answer);
        let text = top.text();
        assert!(text.contains(&"long".repeat(20)), "{text}");
        assert_eq!(text.lines().count(), 9);
    }
}
