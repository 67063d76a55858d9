import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;

public class Main {
    public static void main(String[] args) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 0);
        server.createContext("/", Main::answer);
        server.start();
        System.out.println("listening on 8080");
    }

    private static void answer(HttpExchange exchange) throws IOException {
        if (exchange.getRequestURI().getPath().equals("/"))
            reply(exchange, 200, "Hello " + nameIn(exchange.getRequestURI().getRawQuery()) + " from Java\n");
        else
            reply(exchange, 404, "not found\n");
    }

    private static String nameIn(String query) {
        for (String pair : query == null ? new String[0] : query.split("&"))
            if (pair.startsWith("name="))
                return URLDecoder.decode(pair.substring(5), StandardCharsets.UTF_8);
        return "world";
    }

    private static void reply(HttpExchange exchange, int status, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "text/plain; charset=utf-8");
        exchange.sendResponseHeaders(status, body.length);
        try (exchange) {
            exchange.getResponseBody().write(body);
        }
    }
}
