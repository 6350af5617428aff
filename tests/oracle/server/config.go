package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// config is the part of a Centrifugo v6 configuration that the oracle implements.
// Any other key is rejected: the comparison would be worthless if the oracle
// ignored a part of the configuration.
type config struct {
	HTTPServer struct {
		Address string `json:"address"`
		Port    int    `json:"port"`
	} `json:"http_server"`
	Health struct {
		Enabled bool `json:"enabled"`
	} `json:"health"`
	Log struct {
		Level string `json:"level"`
	} `json:"log"`
	HTTPAPI struct {
		Key string `json:"key"`
	} `json:"http_api"`
	Client  clientConfig  `json:"client"`
	Channel channelConfig `json:"channel"`
	RPC     rpcConfig     `json:"rpc"`
}

type clientConfig struct {
	Token struct {
		HMACSecretKey string `json:"hmac_secret_key"`
	} `json:"token"`
	AllowedOrigins                    []string `json:"allowed_origins"`
	AllowAnonymousConnectWithoutToken bool     `json:"allow_anonymous_connect_without_token"`
	DisallowAnonymousConnectionTokens bool     `json:"disallow_anonymous_connection_tokens"`
	PingInterval                      duration `json:"ping_interval"`
	PongTimeout                       duration `json:"pong_timeout"`
	ExpiredCloseDelay                 duration `json:"expired_close_delay"`
	ExpiredSubCloseDelay              duration `json:"expired_sub_close_delay"`
	StaleCloseDelay                   duration `json:"stale_close_delay"`
	PresenceUpdateInterval            duration `json:"presence_update_interval"`
	ChannelLimit                      int      `json:"channel_limit"`
	UserConnectionLimit               int      `json:"user_connection_limit"`
	HistoryMaxPublicationLimit        int      `json:"history_max_publication_limit"`
	RecoveryMaxPublicationLimit       int      `json:"recovery_max_publication_limit"`
}

type channelConfig struct {
	MaxLength        int              `json:"max_length"`
	WithoutNamespace channelOptions   `json:"without_namespace"`
	Namespaces       []channelOptions `json:"namespaces"`
}

type rpcConfig struct {
	Ping struct {
		Enabled bool   `json:"enabled"`
		Method  string `json:"method"`
	} `json:"ping"`
}

type channelOptions struct {
	Name                       string   `json:"name"`
	Presence                   bool     `json:"presence"`
	JoinLeave                  bool     `json:"join_leave"`
	ForcePushJoinLeave         bool     `json:"force_push_join_leave"`
	HistorySize                int      `json:"history_size"`
	HistoryTTL                 duration `json:"history_ttl"`
	ForcePositioning           bool     `json:"force_positioning"`
	AllowPositioning           bool     `json:"allow_positioning"`
	ForceRecovery              bool     `json:"force_recovery"`
	AllowRecovery              bool     `json:"allow_recovery"`
	ForceRecoveryMode          string   `json:"force_recovery_mode"`
	AllowSubscribeForAnonymous bool     `json:"allow_subscribe_for_anonymous"`
	AllowSubscribeForClient    bool     `json:"allow_subscribe_for_client"`
	AllowPublishForAnonymous   bool     `json:"allow_publish_for_anonymous"`
	AllowPublishForSubscriber  bool     `json:"allow_publish_for_subscriber"`
	AllowPublishForClient      bool     `json:"allow_publish_for_client"`
	AllowPresenceForAnonymous  bool     `json:"allow_presence_for_anonymous"`
	AllowPresenceForSubscriber bool     `json:"allow_presence_for_subscriber"`
	AllowPresenceForClient     bool     `json:"allow_presence_for_client"`
	AllowHistoryForAnonymous   bool     `json:"allow_history_for_anonymous"`
	AllowHistoryForSubscriber  bool     `json:"allow_history_for_subscriber"`
	AllowHistoryForClient      bool     `json:"allow_history_for_client"`
	AllowUserLimitedChannels   bool     `json:"allow_user_limited_channels"`
	AllowedDeltaTypes          []string `json:"allowed_delta_types"`
	DeltaPublish               bool     `json:"delta_publish"`
	AllowTagsFilter            bool     `json:"allow_tags_filter"`
	AllowChannelCompaction     bool     `json:"allow_channel_compaction"`
}

// duration is written as a Go duration string ("25s").
type duration time.Duration

func (d *duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	*d = duration(parsed)
	return err
}

// loadConfig reads a JSON config over Centrifugo v6's defaults.
func loadConfig(path string) (*config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &config{}
	c.HTTPServer.Port = 8000
	c.Client.PingInterval = duration(25 * time.Second)
	c.Client.PongTimeout = duration(8 * time.Second)
	c.Client.ExpiredCloseDelay = duration(25 * time.Second)
	c.Client.ExpiredSubCloseDelay = duration(25 * time.Second)
	c.Client.StaleCloseDelay = duration(10 * time.Second)
	c.Client.PresenceUpdateInterval = duration(27 * time.Second)
	c.Client.ChannelLimit = 128
	c.Client.HistoryMaxPublicationLimit = 300
	c.Client.RecoveryMaxPublicationLimit = 300
	c.Channel.MaxLength = 255
	c.RPC.Ping.Method = "ping"
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// optionsOf finds the options of a channel; false when its namespace is unknown.
func (c *config) optionsOf(channel string) (channelOptions, bool) {
	namespace, _, found := strings.Cut(strings.TrimPrefix(channel, "$"), ":")
	if !found || namespace == "" {
		return c.Channel.WithoutNamespace, true
	}
	for _, options := range c.Channel.Namespaces {
		if options.Name == namespace {
			return options, true
		}
	}
	return channelOptions{}, false
}

// hasHistory returns whether publications of the channel are kept.
func (o channelOptions) hasHistory() bool { return o.HistorySize > 0 && o.HistoryTTL > 0 }
