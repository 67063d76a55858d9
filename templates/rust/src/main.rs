//! A server on the standard library alone; hyper, axum and tokio work as well.
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

fn answer(method: &str, target: &str) -> (&'static str, String) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if method != "GET" || path != "/" {
        return ("404 Not Found", "not found\n".into());
    }
    let name = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("name="))
        .unwrap_or("world");
    ("200 OK", format!("Hello {name} from Rust\n"))
}

fn serve(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(&stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    for header in lines {
        if header?.is_empty() {
            break;
        }
    }
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (status, body) = answer(method, target);
    write!(
        &stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:8080")?;
    println!("listening on 8080");
    for stream in listener.incoming() {
        let stream = stream?;
        // An error is a client that went away: its connection is closed.
        thread::spawn(move || serve(stream).ok());
    }
    Ok(())
}
