package telemetry

import "testing"

func TestIsPodOf(t *testing.T) {
	for pod, want := range map[string]bool{
		"cart":                      true,
		"cart-7c9f8d6b5c-x2x4z":     true,  // Deployment
		"cart-x2x4z":                true,  // DaemonSet, Job
		"cart-29404320-x2x4z":       true,  // CronJob
		"cart-0":                    true,  // StatefulSet
		"cart-db-0":                 false, // another StatefulSet
		"cart-db-7c9f8d6b5c-x2x4z":  false,
		"cart-cache":                false,
		"cartographer-x2x4z":        false,
		"cart-7c9f8d6b5c-x2x4z-bak": false,
	} {
		if got := isPodOf(pod, "cart"); got != want {
			t.Errorf("%s is a pod of cart: %v", pod, got)
		}
	}
}
