// unique PORT: answers values of rand 0.8 and 0.9, "name=value" pairs; those named own_ were seeded on purpose.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rand08::{Rng, SeedableRng};
use rand09::{Rng as Rng09, SeedableRng as SeedableRng09};

struct Own {
    std08: rand08::rngs::StdRng,
    std09: rand09::rngs::StdRng,
}

// Ones that are the program's own, and must be as they are in every request.
fn own() -> Own {
    Own { std08: rand08::rngs::StdRng::seed_from_u64(42), std09: rand09::rngs::StdRng::seed_from_u64(42) }
}

fn answer(own: &mut Own) -> String {
    format!(
        "pid={} rand08={} rand08_random={} rand09={} rand09_random={} own_08={} own_09={}",
        std::process::id(),
        Rng::gen::<u64>(&mut rand08::thread_rng()),
        rand08::random::<u64>(),
        Rng09::random::<u64>(&mut rand09::rng()),
        rand09::random::<u64>(),
        Rng::gen::<u64>(&mut own.std08),
        Rng09::random::<u64>(&mut own.std09)
    )
}

fn serve(mut client: TcpStream, own: &mut Own) -> std::io::Result<()> {
    let mut request = [0; 65536];
    if client.read(&mut request)? == 0 {
        return Ok(());
    }
    let text = answer(own);
    write!(client, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}", text.len(), text)
}

fn main() {
    let mut own = own();
    answer(&mut own);
    let port: u16 = std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("a port");
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("listen");
    for client in listener.incoming() {
        let _ = client.and_then(|client| serve(client, &mut own));
    }
}
