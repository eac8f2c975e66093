-- SPDX-License-Identifier: Apache-2.0
-- For wrk: every request sells one.
wrk.method = "POST"
