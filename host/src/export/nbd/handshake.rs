//! stub
#![allow(missing_docs, dead_code, unused)]
pub struct Handshake {}
pub trait Catalogue { fn find(&self, name: &str) -> Option<ExportInfo<'_>>; fn for_each(&self, f: &mut dyn FnMut(&ExportInfo<'_>)); }
pub struct ExportInfo<'a> { pub index: usize, pub name: &'a str, pub description: &'a str, pub size: u64, pub transmission_flags: u16, pub block_min: u32, pub block_preferred: u32, pub block_max: u32 }
pub enum TlsPolicy { Off, Optional, Required }
pub enum Step { NeedMore, StartTls, Ready(Session), Close(String) }
#[derive(Debug)] pub struct Session { pub export: usize, pub structured: bool, pub extended: bool, pub allocation_context: bool, pub context_id: u32 }
impl Handshake { pub fn new(tls: TlsPolicy, out: &mut Vec<u8>) -> Self { Self {} } pub fn receive(&mut self, bytes: &[u8], c: &dyn Catalogue, out: &mut Vec<u8>) -> (usize, Step) { (0, Step::NeedMore) } pub fn tls_established(&mut self) {} }
