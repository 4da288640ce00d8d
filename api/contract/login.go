package contract

import "time"

// DeviceLogin is the response to POST /login/device, which starts the log-in of a program. The paths under /login
// aren't part of openapi.yaml, because their callers need no role.
type DeviceLogin struct {
	Handle                  string  `json:"handle"` // secret of the program
	UserCode                string  `json:"user_code"`
	VerificationURI         string  `json:"verification_uri"`
	VerificationURIComplete string  `json:"verification_uri_complete,omitempty"` // with the code
	ExpiresIn               float64 `json:"expires_in"`                          // seconds
	Interval                float64 `json:"interval"`                            // seconds to wait before the next request
}

// DeviceToken is the response to POST /login/device/token: either the session, or the time to wait for it.
type DeviceToken struct {
	Interval float64   `json:"interval,omitempty"` // seconds to wait before the next request; 0: there is a session
	Token    string    `json:"token,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
	Name     string    `json:"name,omitempty"`
	Role     string    `json:"role,omitempty"`
}
