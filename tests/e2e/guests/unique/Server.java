// Server PORT: answers values of every generator of Java, "name=value" pairs; those named own_ were seeded on purpose.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.random.RandomGenerator;
import java.util.stream.IntStream;

public class Server {
    static final Random own = new Random(42);
    static final SplittableRandom ownSplittable = new SplittableRandom(42);
    static final SecureRandom secure = new SecureRandom();

    static String answer() {
        List<Integer> list = new ArrayList<>(IntStream.range(0, 30).boxed().toList());
        Collections.shuffle(list);
        return "math=" + Math.random() + " local=" + ThreadLocalRandom.current().nextLong()
            + " uuid=" + UUID.randomUUID() + " secure=" + secure.nextLong() + " random=" + new Random().nextLong()
            + " splittable=" + new SplittableRandom().nextLong() + " generator=" + RandomGenerator.getDefault().nextLong()
            + " shuffle=" + list.toString().replace(" ", "") + " own=" + own.nextLong() + " own_splittable=" + ownSplittable.nextLong();
    }

    static void handle(HttpExchange exchange) throws IOException {
        byte[] text = answer().getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(200, text.length);
        exchange.getResponseBody().write(text);
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        answer();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.createContext("/", Server::handle);
        server.start();
    }
}
