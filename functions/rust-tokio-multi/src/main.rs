#[tokio::main(flavor = "multi_thread")]
async fn main() -> std::io::Result<()> {
    rust_common::serve().await
}
