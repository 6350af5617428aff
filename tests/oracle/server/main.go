// The oracle: the genuine centrifuge library behind the rules of a Centrifugo
// v6 configuration. Dunlin must give the same replies to the same scripts.
//
//	server [serve] -c FILE
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/centrifugal/centrifuge"
)

func main() {
	arguments := os.Args[1:]
	if len(arguments) > 0 && arguments[0] == "serve" {
		arguments = arguments[1:]
	}
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	path := flags.String("c", "config.json", "configuration with Centrifugo v6 keys, JSON")
	_ = flags.Parse(arguments)
	c, err := loadConfig(*path)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(c); err != nil {
		log.Fatal(err)
	}
}

// serve runs until SIGINT or SIGTERM.
func serve(c *config) error {
	node, err := centrifuge.New(nodeConfig(c))
	if err != nil {
		return err
	}
	(&rules{config: c, node: node}).attach()
	if err := node.Run(); err != nil {
		return err
	}
	address := net.JoinHostPort(c.HTTPServer.Address, strconv.Itoa(c.HTTPServer.Port))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(c, node), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	log.Printf("serving on %s", address)

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	select {
	case err := <-failed:
		return err
	case <-stop:
	}
	deadline, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := node.Shutdown(deadline); err != nil {
		return err
	}
	return server.Shutdown(deadline)
}

func nodeConfig(c *config) centrifuge.Config {
	return centrifuge.Config{
		Version:                    "oracle",
		LogLevel:                   centrifuge.LogLevelInfo,
		LogHandler:                 logEntry,
		ClientExpiredCloseDelay:    time.Duration(c.Client.ExpiredCloseDelay),
		ClientExpiredSubCloseDelay: time.Duration(c.Client.ExpiredSubCloseDelay),
		ClientStaleCloseDelay:      time.Duration(c.Client.StaleCloseDelay),
		// The library looks for expired subscriptions on this tick, too.
		ClientPresenceUpdateInterval: time.Duration(c.Client.PresenceUpdateInterval),
		ClientChannelLimit:           c.Client.ChannelLimit,
		UserConnectionLimit:          c.Client.UserConnectionLimit,
		ChannelMaxLength:             c.Channel.MaxLength,
		HistoryMaxPublicationLimit:   c.Client.HistoryMaxPublicationLimit,
		RecoveryMaxPublicationLimit:  c.Client.RecoveryMaxPublicationLimit,
	}
}

func routes(c *config, node *centrifuge.Node) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/connection/websocket", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		CheckOrigin: func(r *http.Request) bool { return originAllowed(c.Client.AllowedOrigins, r) },
		PingPongConfig: centrifuge.PingPongConfig{
			PingInterval: time.Duration(c.Client.PingInterval),
			PongTimeout:  time.Duration(c.Client.PongTimeout),
		},
	}))
	mux.Handle("/api/", &api{config: c, node: node})
	if c.Health.Enabled {
		mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}"))
		})
	}
	return mux
}

// originAllowed accepts a request without Origin, and one whose Origin has the
// scheme and the host of an allowed one (or is allowed by "*").
func originAllowed(allowed []string, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	parsed, err := url.Parse(strings.ToLower(origin))
	if err != nil {
		return false
	}
	for _, pattern := range allowed {
		if pattern == "*" || strings.ToLower(pattern) == fmt.Sprintf("%s://%s", parsed.Scheme, parsed.Host) {
			return true
		}
	}
	return false
}

func logEntry(entry centrifuge.LogEntry) {
	log.Printf("%s %v", entry.Message, entry.Fields)
}
