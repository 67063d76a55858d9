#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    rust_common::serve().await
}
