"""Why a run failed: rules, their matchers, and the evidence they look at."""
