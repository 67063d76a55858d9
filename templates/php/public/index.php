<?php

$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
header('Content-Type: text/plain; charset=utf-8');
if ($path !== '/') {
    http_response_code(404);
    echo "not found\n";
    return;
}
echo 'Hello ', $_GET['name'] ?? 'world', " from PHP\n";
