//! What the two tokio servers share: everything but the choice of runtime.
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{server::conn::http1, service::service_fn};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const MAX_BODY: usize = 20 << 20;

static COUNT: AtomicU64 = AtomicU64::new(0);

async fn echo(body: Incoming) -> (StatusCode, Bytes) {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => (StatusCode::OK, body.to_bytes()),
        Err(_) => (StatusCode::PAYLOAD_TOO_LARGE, Bytes::new()),
    }
}

fn bytes(n: &str) -> (StatusCode, Bytes) {
    match n.parse::<u32>() {
        Ok(n) => (
            StatusCode::OK,
            (0..n).map(|i| b'a' + (i % 26) as u8).collect(),
        ),
        Err(_) => (StatusCode::BAD_REQUEST, Bytes::new()),
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let get = request.method() == Method::GET;
    let (status, body) = match request.uri().path() {
        "/" if get => (StatusCode::OK, "Hello from Rust\n".into()),
        "/count" if get => {
            let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
            (StatusCode::OK, format!("{count}\n").into())
        }
        "/echo" if request.method() == Method::POST => echo(request.into_body()).await,
        "/spin" if get => loop {
            std::hint::spin_loop()
        },
        "/crash" if get => std::process::exit(3),
        path => match path.strip_prefix("/bytes/") {
            Some(n) if get => bytes(n),
            _ => (StatusCode::NOT_FOUND, "not found\n".into()),
        },
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

/// Serves 127.0.0.1 at the port that the first argument names, for ever.
pub async fn serve() -> std::io::Result<()> {
    let port = std::env::args()
        .nth(1)
        .map_or(8080, |port| port.parse().expect("a port number"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("listening on {port}");
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // An error here is a client that vanished or spoke no HTTP: its connection is closed.
        tokio::spawn(
            http1::Builder::new()
                .half_close(true)
                .serve_connection(TokioIo::new(stream), service_fn(answer)),
        );
    }
}
