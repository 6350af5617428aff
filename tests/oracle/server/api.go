package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"time"

	"github.com/centrifugal/centrifuge"
)

// api is the part of Centrifugo's HTTP API that scripts and SDK tests use.
type api struct {
	config *config
	node   *centrifuge.Node
}

type apiRequest struct {
	Channel        string            `json:"channel"`
	Channels       []string          `json:"channels"`
	Data           json.RawMessage   `json:"data"`
	B64Data        string            `json:"b64data"`
	SkipHistory    bool              `json:"skip_history"`
	Tags           map[string]string `json:"tags"`
	IdempotencyKey string            `json:"idempotency_key"`
	Delta          bool              `json:"delta"`
	Version        uint64            `json:"version"`
	VersionEpoch   string            `json:"version_epoch"`
	Expired        bool              `json:"expired"`
	ExpireAt       int64             `json:"expire_at"`
	Info           json.RawMessage   `json:"info"`
	User           string            `json:"user"`
	Client         string            `json:"client"`
	Disconnect     *struct {
		Code   uint32 `json:"code"`
		Reason string `json:"reason"`
	} `json:"disconnect"`
	Whitelist []string `json:"whitelist"`
	Limit     int      `json:"limit"`
	Reverse   bool     `json:"reverse"`
	Since     *struct {
		Offset uint64 `json:"offset"`
		Epoch  string `json:"epoch"`
	} `json:"since"`
}

type apiError struct {
	Code    uint32 `json:"code"`
	Message string `json:"message"`
}

var (
	errInternal       = &apiError{100, "internal server error"}
	errUnknownChannel = &apiError{102, "unknown channel"}
	errBadRequest     = &apiError{107, "bad request"}
	errNotAvailable   = &apiError{108, "not available"}
	errUnrecoverable  = &apiError{112, "unrecoverable position"}
)

type object = map[string]any

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.Header.Get("X-API-Key") != a.config.HTTPAPI.Key || a.config.HTTPAPI.Key == "" {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	method, known := map[string]func(*apiRequest) (any, *apiError){
		"publish":        a.publish,
		"broadcast":      a.broadcast,
		"subscribe":      a.subscribe,
		"unsubscribe":    a.unsubscribe,
		"refresh":        a.refresh,
		"disconnect":     a.disconnect,
		"presence":       a.presence,
		"presence_stats": a.presenceStats,
		"history":        a.history,
		"history_remove": a.historyRemove,
	}[path.Base(r.URL.Path)]
	if !known {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	request := &apiRequest{}
	if err != nil || json.Unmarshal(body, request) != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	result, failure := method(request)
	answer := object{"result": result}
	if failure != nil {
		answer = object{"error": failure}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *api) publish(request *apiRequest) (any, *apiError) {
	options, failure := a.channel(request.Channel)
	if failure != nil {
		return nil, failure
	}
	data := []byte(request.Data)
	if request.B64Data != "" {
		decoded, err := base64.StdEncoding.DecodeString(request.B64Data)
		if err != nil {
			return nil, errBadRequest
		}
		data = decoded
	}
	size, ttl := options.HistorySize, time.Duration(options.HistoryTTL)
	if request.SkipHistory {
		size, ttl = 0, 0
	}
	result, err := a.node.Publish(request.Channel, data,
		centrifuge.WithHistory(size, ttl),
		centrifuge.WithTags(request.Tags),
		centrifuge.WithIdempotencyKey(request.IdempotencyKey),
		centrifuge.WithDelta(request.Delta || options.DeltaPublish),
		centrifuge.WithVersion(request.Version, request.VersionEpoch))
	if err != nil {
		return nil, errInternal
	}
	return object{"offset": result.Offset, "epoch": result.Epoch}, nil
}

func (a *api) broadcast(request *apiRequest) (any, *apiError) {
	if len(request.Channels) == 0 {
		return nil, errBadRequest
	}
	responses := make([]object, 0, len(request.Channels))
	for _, channel := range request.Channels {
		one := *request
		one.Channel = channel
		result, failure := a.publish(&one)
		if failure != nil {
			responses = append(responses, object{"error": failure})
			continue
		}
		responses = append(responses, object{"result": result})
	}
	return object{"responses": responses}, nil
}

// subscribe starts a server-side subscription for a user's sessions.
func (a *api) subscribe(request *apiRequest) (any, *apiError) {
	options, failure := a.channel(request.Channel)
	if failure != nil {
		return nil, failure
	}
	base := baseOptions(options)
	err := a.node.Subscribe(request.User, request.Channel,
		centrifuge.WithSubscribeClient(request.Client),
		centrifuge.WithSubscribeData(request.Data),
		centrifuge.WithChannelInfo(request.Info),
		centrifuge.WithExpireAt(request.ExpireAt),
		centrifuge.WithEmitPresence(base.EmitPresence),
		centrifuge.WithEmitJoinLeave(base.EmitJoinLeave),
		centrifuge.WithPushJoinLeave(base.PushJoinLeave),
		centrifuge.WithPositioning(base.EnablePositioning),
		centrifuge.WithRecovery(base.EnableRecovery))
	if err != nil {
		return nil, errInternal
	}
	return object{}, nil
}

func (a *api) unsubscribe(request *apiRequest) (any, *apiError) {
	if request.Channel != "" {
		if _, known := a.config.optionsOf(request.Channel); !known {
			return nil, errUnknownChannel
		}
	}
	err := a.node.Unsubscribe(request.User, request.Channel, centrifuge.WithUnsubscribeClient(request.Client))
	if err != nil {
		return nil, errInternal
	}
	return object{}, nil
}

func (a *api) refresh(request *apiRequest) (any, *apiError) {
	err := a.node.Refresh(request.User,
		centrifuge.WithRefreshClient(request.Client),
		centrifuge.WithRefreshExpired(request.Expired),
		centrifuge.WithRefreshExpireAt(request.ExpireAt),
		centrifuge.WithRefreshInfo(request.Info))
	if err != nil {
		return nil, errInternal
	}
	return object{}, nil
}

func (a *api) disconnect(request *apiRequest) (any, *apiError) {
	disconnect := centrifuge.DisconnectForceNoReconnect
	if request.Disconnect != nil {
		disconnect = centrifuge.Disconnect{Code: request.Disconnect.Code, Reason: request.Disconnect.Reason}
	}
	err := a.node.Disconnect(request.User,
		centrifuge.WithCustomDisconnect(disconnect),
		centrifuge.WithDisconnectClient(request.Client),
		centrifuge.WithDisconnectClientWhitelist(request.Whitelist))
	if err != nil {
		return nil, errInternal
	}
	return object{}, nil
}

func (a *api) presence(request *apiRequest) (any, *apiError) {
	options, failure := a.channel(request.Channel)
	if failure != nil {
		return nil, failure
	}
	if !options.Presence {
		return nil, errNotAvailable
	}
	result, err := a.node.Presence(request.Channel)
	if err != nil {
		return nil, errInternal
	}
	present := object{}
	for id, info := range result.Presence {
		present[id] = infoObject(info)
	}
	return object{"presence": present}, nil
}

func (a *api) presenceStats(request *apiRequest) (any, *apiError) {
	options, failure := a.channel(request.Channel)
	if failure != nil {
		return nil, failure
	}
	if !options.Presence {
		return nil, errNotAvailable
	}
	stats, err := a.node.PresenceStats(request.Channel)
	if err != nil {
		return nil, errInternal
	}
	return object{"num_clients": stats.NumClients, "num_users": stats.NumUsers}, nil
}

func (a *api) history(request *apiRequest) (any, *apiError) {
	options, failure := a.channel(request.Channel)
	if failure != nil {
		return nil, failure
	}
	if !options.hasHistory() {
		return nil, errNotAvailable
	}
	var since *centrifuge.StreamPosition
	if request.Since != nil {
		since = &centrifuge.StreamPosition{Offset: request.Since.Offset, Epoch: request.Since.Epoch}
	}
	result, err := a.node.History(request.Channel,
		centrifuge.WithLimit(request.Limit), centrifuge.WithSince(since), centrifuge.WithReverse(request.Reverse))
	if errors.Is(err, centrifuge.ErrorUnrecoverablePosition) {
		return nil, errUnrecoverable
	}
	if err != nil {
		return nil, errInternal
	}
	publications := make([]object, 0, len(result.Publications))
	for _, publication := range result.Publications {
		entry := object{"data": json.RawMessage(publication.Data), "offset": publication.Offset}
		if publication.Info != nil {
			entry["info"] = infoObject(publication.Info)
		}
		if len(publication.Tags) > 0 {
			entry["tags"] = publication.Tags
		}
		publications = append(publications, entry)
	}
	return object{"publications": publications, "offset": result.Offset, "epoch": result.Epoch}, nil
}

func (a *api) historyRemove(request *apiRequest) (any, *apiError) {
	options, failure := a.channel(request.Channel)
	if failure != nil {
		return nil, failure
	}
	if !options.hasHistory() {
		return nil, errNotAvailable
	}
	if err := a.node.RemoveHistory(request.Channel); err != nil {
		return nil, errInternal
	}
	return object{}, nil
}

func (a *api) channel(name string) (channelOptions, *apiError) {
	if name == "" {
		return channelOptions{}, errBadRequest
	}
	options, known := a.config.optionsOf(name)
	if !known {
		return options, errUnknownChannel
	}
	return options, nil
}

func infoObject(info *centrifuge.ClientInfo) object {
	o := object{"user": info.UserID, "client": info.ClientID}
	if len(info.ConnInfo) > 0 {
		o["conn_info"] = json.RawMessage(info.ConnInfo)
	}
	if len(info.ChanInfo) > 0 {
		o["chan_info"] = json.RawMessage(info.ChanInfo)
	}
	return o
}
