package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/centrifugal/centrifuge"
)

// rules implements the library's handlers like a Centrifugo v6 with this config and
// without proxies: who may connect, and what a session may do in a channel.
type rules struct {
	config *config
	node   *centrifuge.Node
}

// sourceToken marks the subscriptions that a connection token named.
const sourceToken = 1

func (r *rules) attach() {
	r.node.OnConnecting(r.connecting)
	r.node.OnConnect(func(client *centrifuge.Client) {
		client.OnRefresh(func(event centrifuge.RefreshEvent, done centrifuge.RefreshCallback) {
			done(r.refresh(client, event))
		})
		client.OnSubscribe(func(event centrifuge.SubscribeEvent, done centrifuge.SubscribeCallback) {
			done(r.subscribe(client, event))
		})
		client.OnSubRefresh(func(event centrifuge.SubRefreshEvent, done centrifuge.SubRefreshCallback) {
			done(r.subRefresh(client, event))
		})
		client.OnPublish(func(event centrifuge.PublishEvent, done centrifuge.PublishCallback) {
			done(r.publish(client, event))
		})
		client.OnPresence(func(event centrifuge.PresenceEvent, done centrifuge.PresenceCallback) {
			done(centrifuge.PresenceReply{}, r.mayReadPresence(client, event.Channel))
		})
		client.OnPresenceStats(func(event centrifuge.PresenceStatsEvent, done centrifuge.PresenceStatsCallback) {
			done(centrifuge.PresenceStatsReply{}, r.mayReadPresence(client, event.Channel))
		})
		client.OnHistory(func(event centrifuge.HistoryEvent, done centrifuge.HistoryCallback) {
			done(centrifuge.HistoryReply{}, r.mayReadHistory(client, event.Channel))
		})
		if r.config.RPC.Ping.Enabled {
			client.OnRPC(func(event centrifuge.RPCEvent, done centrifuge.RPCCallback) {
				done(r.rpc(event))
			})
		}
	})
}

func (r *rules) connecting(_ context.Context, event centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
	subscriptions := map[string]centrifuge.SubscribeOptions{}
	var credentials *centrifuge.Credentials
	switch {
	case event.Token != "":
		token, err := r.connectionToken(event.Token)
		if err != nil {
			return centrifuge.ConnectReply{}, err
		}
		if token.Subject == "" && r.config.Client.DisallowAnonymousConnectionTokens {
			return centrifuge.ConnectReply{}, centrifuge.DisconnectPermissionDenied
		}
		info, err := token.info()
		if err != nil {
			return centrifuge.ConnectReply{}, centrifuge.DisconnectInvalidToken
		}
		if err := r.serverSideSubscriptions(token, subscriptions); err != nil {
			return centrifuge.ConnectReply{}, err
		}
		credentials = &centrifuge.Credentials{
			UserID: token.Subject, ExpireAt: token.sessionExpireAt(), Info: info,
		}
	case r.config.Client.AllowAnonymousConnectWithoutToken:
		credentials = &centrifuge.Credentials{}
	}
	if credentials != nil {
		if err := r.requestedSubscriptions(event.Channels, credentials.UserID, subscriptions); err != nil {
			return centrifuge.ConnectReply{}, err
		}
	}
	return centrifuge.ConnectReply{
		Credentials: credentials, Subscriptions: subscriptions, ClientSideRefresh: true,
	}, nil
}

// connectionToken maps the result of a token check to the reply or disconnect code.
func (r *rules) connectionToken(text string) (*claims, error) {
	token, err := verifyToken(text, r.config.Client.Token.HMACSecretKey)
	switch {
	case token != nil && token.Channel != "":
		return nil, centrifuge.DisconnectInvalidToken
	case errors.Is(err, errTokenExpired):
		return nil, centrifuge.ErrorTokenExpired
	case err != nil:
		return nil, centrifuge.DisconnectInvalidToken
	}
	return token, nil
}

// serverSideSubscriptions adds what the token's `subs` or else `channels` name.
func (r *rules) serverSideSubscriptions(token *claims, into map[string]centrifuge.SubscribeOptions) error {
	named := token.Subs
	if len(named) == 0 {
		named = map[string]claimedSubs{}
		for _, channel := range token.Channels {
			named[channel] = claimedSubs{}
		}
	}
	for channel, claimed := range named {
		options, found := r.config.optionsOf(channel)
		if !found {
			return centrifuge.ErrorUnknownChannel
		}
		subscription := baseOptions(options)
		subscription.ChannelInfo = claimed.Info
		subscription.Data = claimed.Data
		subscription.Source = sourceToken
		into[channel] = subscription
	}
	return nil
}

// requestedSubscriptions adds the channels that the connect command asks for and
// that the session could subscribe to by itself.
func (r *rules) requestedSubscriptions(channels []string, user string, into map[string]centrifuge.SubscribeOptions) error {
	for _, channel := range channels {
		options, found := r.config.optionsOf(channel)
		if !found {
			return centrifuge.DisconnectBadRequest
		}
		if strings.HasPrefix(channel, "$") || !isASCII(channel) {
			continue
		}
		limited := options.AllowUserLimitedChannels && strings.Contains(channel, "#")
		allowed := limited && user != "" && userIsNamed(channel, user) ||
			!limited && options.AllowSubscribeForClient && (user != "" || options.AllowSubscribeForAnonymous)
		if _, present := into[channel]; allowed && !present {
			into[channel] = baseOptions(options)
		}
	}
	return nil
}

func (r *rules) refresh(client *centrifuge.Client, event centrifuge.RefreshEvent) (centrifuge.RefreshReply, error) {
	token, err := r.connectionToken(event.Token)
	if errors.Is(err, centrifuge.ErrorTokenExpired) {
		return centrifuge.RefreshReply{Expired: true}, nil
	}
	if err != nil {
		return centrifuge.RefreshReply{}, err
	}
	if token.Subject != client.UserID() {
		return centrifuge.RefreshReply{}, centrifuge.DisconnectInvalidToken
	}
	info, err := token.info()
	if err != nil {
		return centrifuge.RefreshReply{}, centrifuge.DisconnectInvalidToken
	}
	named := map[string]centrifuge.SubscribeOptions{}
	if err := r.serverSideSubscriptions(token, named); err != nil {
		return centrifuge.RefreshReply{}, err
	}
	if tokenSubscriptionsChanged(client, named) {
		return centrifuge.RefreshReply{}, centrifuge.DisconnectInsufficientState
	}
	return centrifuge.RefreshReply{ExpireAt: token.sessionExpireAt(), Info: info}, nil
}

// tokenSubscriptionsChanged returns whether a new token names other server-side
// subscriptions than the session has from its token.
func tokenSubscriptionsChanged(client *centrifuge.Client, named map[string]centrifuge.SubscribeOptions) bool {
	for channel := range named {
		if !client.IsSubscribed(channel) {
			return true
		}
	}
	for channel, context := range client.ChannelsWithContext() {
		if _, still := named[channel]; context.Source == sourceToken && !still {
			return true
		}
	}
	return false
}

func (r *rules) subscribe(client *centrifuge.Client, event centrifuge.SubscribeEvent) (centrifuge.SubscribeReply, error) {
	options, err := r.knownChannel(event.Channel)
	if err != nil {
		return centrifuge.SubscribeReply{}, err
	}
	if strings.HasPrefix(event.Channel, "$") && event.Token == "" {
		return centrifuge.SubscribeReply{}, centrifuge.ErrorPermissionDenied
	}
	granted := baseOptions(options)
	limited := options.AllowUserLimitedChannels && strings.Contains(event.Channel, "#")
	switch {
	case event.Token != "":
		token, err := r.subscriptionToken(client, event.Channel, event.Token)
		if err != nil {
			return centrifuge.SubscribeReply{}, err
		}
		granted.ExpireAt = token.sessionExpireAt()
		granted.Data = token.Data
		if granted.ChannelInfo, err = token.info(); err != nil {
			return centrifuge.SubscribeReply{}, centrifuge.ErrorPermissionDenied
		}
	case limited && userIsNamed(event.Channel, client.UserID()):
	case !limited && options.AllowSubscribeForClient && (client.UserID() != "" || options.AllowSubscribeForAnonymous):
	default:
		return centrifuge.SubscribeReply{}, centrifuge.ErrorPermissionDenied
	}
	if event.Positioned && (options.AllowPositioning || r.historyAllowed(client, event.Channel, options, true)) {
		granted.EnablePositioning = true
	}
	if event.Recoverable && (options.AllowRecovery || r.historyAllowed(client, event.Channel, options, true)) {
		granted.EnableRecovery = true
	}
	if event.JoinLeave && options.JoinLeave && r.presenceAllowed(client, event.Channel, options, true) {
		granted.PushJoinLeave = true
	}
	return centrifuge.SubscribeReply{Options: granted, ClientSideRefresh: true}, nil
}

// subscriptionToken checks a subscription token for this client and channel.
func (r *rules) subscriptionToken(client *centrifuge.Client, channel, text string) (*claims, error) {
	token, err := verifyToken(text, r.config.Client.Token.HMACSecretKey)
	if errors.Is(err, errTokenExpired) {
		return nil, centrifuge.ErrorTokenExpired
	}
	if err != nil || token.Channel == "" {
		return nil, centrifuge.ErrorPermissionDenied
	}
	if token.Channel != channel || token.Subject != client.UserID() ||
		token.Client != "" && token.Client != client.ID() {
		return nil, centrifuge.DisconnectInvalidToken
	}
	return token, nil
}

func (r *rules) subRefresh(client *centrifuge.Client, event centrifuge.SubRefreshEvent) (centrifuge.SubRefreshReply, error) {
	token, err := r.subscriptionToken(client, event.Channel, event.Token)
	switch {
	case errors.Is(err, centrifuge.ErrorTokenExpired):
		return centrifuge.SubRefreshReply{Expired: true}, nil
	case errors.Is(err, centrifuge.ErrorPermissionDenied):
		return centrifuge.SubRefreshReply{}, centrifuge.DisconnectInvalidToken
	case err != nil:
		return centrifuge.SubRefreshReply{}, err
	}
	info, err := token.info()
	if err != nil {
		return centrifuge.SubRefreshReply{}, centrifuge.DisconnectInvalidToken
	}
	return centrifuge.SubRefreshReply{ExpireAt: token.sessionExpireAt(), Info: info}, nil
}

func (r *rules) publish(client *centrifuge.Client, event centrifuge.PublishEvent) (centrifuge.PublishReply, error) {
	options, err := r.knownChannel(event.Channel)
	if err != nil {
		return centrifuge.PublishReply{}, err
	}
	user := client.UserID() != "" || options.AllowPublishForAnonymous
	subscriber := options.AllowPublishForSubscriber && client.IsSubscribed(event.Channel)
	if !user || !options.AllowPublishForClient && !subscriber {
		return centrifuge.PublishReply{}, centrifuge.ErrorPermissionDenied
	}
	result, err := r.node.Publish(event.Channel, event.Data,
		centrifuge.WithClientInfo(event.ClientInfo),
		centrifuge.WithHistory(options.HistorySize, time.Duration(options.HistoryTTL)))
	return centrifuge.PublishReply{Result: &result}, err
}

func (r *rules) mayReadPresence(client *centrifuge.Client, channel string) error {
	options, err := r.knownChannel(channel)
	if err != nil {
		return err
	}
	if !options.Presence {
		return centrifuge.ErrorNotAvailable
	}
	if !r.presenceAllowed(client, channel, options, false) {
		return centrifuge.ErrorPermissionDenied
	}
	return nil
}

func (r *rules) mayReadHistory(client *centrifuge.Client, channel string) error {
	options, err := r.knownChannel(channel)
	if err != nil {
		return err
	}
	if !options.hasHistory() {
		return centrifuge.ErrorNotAvailable
	}
	if !r.historyAllowed(client, channel, options, false) {
		return centrifuge.ErrorPermissionDenied
	}
	return nil
}

func (r *rules) rpc(event centrifuge.RPCEvent) (centrifuge.RPCReply, error) {
	if event.Method != r.config.RPC.Ping.Method {
		return centrifuge.RPCReply{}, centrifuge.ErrorMethodNotFound
	}
	return centrifuge.RPCReply{}, nil
}

func (r *rules) knownChannel(channel string) (channelOptions, error) {
	options, found := r.config.optionsOf(channel)
	if !found {
		return options, centrifuge.ErrorUnknownChannel
	}
	if !isASCII(channel) {
		return options, centrifuge.ErrorBadRequest
	}
	return options, nil
}

func (r *rules) presenceAllowed(client *centrifuge.Client, channel string, options channelOptions, subscribing bool) bool {
	user := client.UserID() != "" || options.AllowPresenceForAnonymous
	subscriber := options.AllowPresenceForSubscriber && (subscribing || client.IsSubscribed(channel))
	return user && (options.AllowPresenceForClient || subscriber)
}

func (r *rules) historyAllowed(client *centrifuge.Client, channel string, options channelOptions, subscribing bool) bool {
	user := client.UserID() != "" || options.AllowHistoryForAnonymous
	subscriber := options.AllowHistoryForSubscriber && (subscribing || client.IsSubscribed(channel))
	return user && (options.AllowHistoryForClient || subscriber)
}

// baseOptions are the options of every subscription to the channel.
func baseOptions(options channelOptions) centrifuge.SubscribeOptions {
	mode := centrifuge.RecoveryModeStream
	if options.ForceRecoveryMode == "cache" {
		mode = centrifuge.RecoveryModeCache
	}
	var deltas []centrifuge.DeltaType
	for _, name := range options.AllowedDeltaTypes {
		deltas = append(deltas, centrifuge.DeltaType(name))
	}
	return centrifuge.SubscribeOptions{
		EmitPresence:           options.Presence,
		EmitJoinLeave:          options.JoinLeave,
		PushJoinLeave:          options.ForcePushJoinLeave,
		EnablePositioning:      options.ForcePositioning,
		EnableRecovery:         options.ForceRecovery,
		RecoveryMode:           mode,
		AllowedDeltaTypes:      deltas,
		AllowTagsFilter:        options.AllowTagsFilter,
		AllowChannelCompaction: options.AllowChannelCompaction,
	}
}

func userIsNamed(channel, user string) bool {
	at := strings.LastIndex(channel, "#")
	for _, named := range strings.Split(channel[at+1:], ",") {
		if named == user {
			return true
		}
	}
	return false
}

func isASCII(text string) bool {
	for i := 0; i < len(text); i++ {
		if text[i] > 127 {
			return false
		}
	}
	return true
}
