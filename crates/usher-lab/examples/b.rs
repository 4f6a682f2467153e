//! x
#![allow(dead_code)]
use clap::Parser;
mod exit {
    #[derive(Debug, Clone, Copy)]
    pub enum Code {
        Fine,
        Other(u8),
    }
    #[derive(Debug)]
    pub struct Failure(pub usher_lab::LabError);
    impl From<usher_lab::LabError> for Failure {
        fn from(e: usher_lab::LabError) -> Self {
            Failure(e)
        }
    }
}
#[path = "../../usher/src/cmd/lab.rs"]
mod lab;
#[derive(Parser)]
struct A {
    #[command(flatten)]
    lab: lab::Args,
}
fn main() {
    match lab::run(&A::parse().lab) {
        Ok(exit::Code::Fine) => {}
        Ok(exit::Code::Other(c)) => std::process::exit(c.into()),
        Err(f) => {
            eprintln!("usher: {}", f.0);
            std::process::exit(f.0.exit_code().into())
        }
    }
}
