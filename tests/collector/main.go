// The OTLP receiver of the OpenTelemetry Collector. It writes what it accepts to stdout, as the collector understood it:
// OTLP/JSON, one line for each request. Its first line is the address that it listens on. Ends when stdin does.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

// The receiver does not tell which port it got, so one is chosen here.
func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func main() {
	address := freeAddress()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	wanted := confmap.NewFromStringMap(map[string]any{
		"protocols": map[string]any{"http": map[string]any{"endpoint": address}},
	})
	if err := wanted.Unmarshal(config); err != nil {
		log.Fatal(err)
	}
	var mutex sync.Mutex
	marshaler := ptrace.JSONMarshaler{}
	out, err := consumer.NewTraces(func(_ context.Context, traces ptrace.Traces) error {
		line, err := marshaler.MarshalTraces(traces)
		if err != nil {
			return err
		}
		mutex.Lock()
		defer mutex.Unlock()
		_, err = fmt.Println(string(line))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	settings := receiver.Settings{
		ID:                component.NewID(factory.Type()),
		TelemetrySettings: componenttest.NewNopTelemetrySettings(),
	}
	traces, err := factory.CreateTraces(context.Background(), settings, config, out)
	if err != nil {
		log.Fatal(err)
	}
	if err := traces.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(address)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = traces.Shutdown(context.Background())
}
