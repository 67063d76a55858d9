<?php
// server.php PORT [own|unlucky]: answers values of every generator of PHP, "name=value" pairs; those named own_ were
// seeded on purpose.
function answer(bool $own): string {
    $mt = ($own ? "own_" : "") . "mt";
    $values = [
        "pid" => getmypid(), $mt => mt_rand() . "-" . mt_rand() . "-" . mt_rand(), "{$mt}_shuffle" => str_shuffle("abcdefghijklmnopqrstuvwxyz0123456789"),
        "lcg" => lcg_value(), "int" => random_int(0, PHP_INT_MAX), "bytes" => bin2hex(random_bytes(8)),
    ];
    return implode(" ", array_map(fn($name) => "$name={$values[$name]}", array_keys($values)));
}

$own = ($argv[2] ?? "") === "own";
if ($own)
    mt_srand(42);
if (($argv[2] ?? "") === "unlucky")
    mt_srand(692156); // as PHP did by itself once
answer($own);
$server = stream_socket_server("tcp://127.0.0.1:{$argv[1]}");
while (true) {
    $client = @stream_socket_accept($server, -1);
    if ($client && fgets($client) !== false) {
        $text = answer($own);
        fwrite($client, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " . strlen($text) . "\r\n\r\n$text");
    }
    if ($client)
        fclose($client);
}
