package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"
)

// sign adds the headers of Standard Webhooks to h: the message's id, the time `at` and, if key isn't empty, the
// signature of id, time and body.
func sign(h http.Header, key []byte, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", stamp)
	if len(key) == 0 {
		return
	}
	mac := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte(id), []byte("."), []byte(stamp), []byte("."), body} {
		mac.Write(part)
	}
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
