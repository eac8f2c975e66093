-- SPDX-License-Identifier: Apache-2.0
-- For wrk: every request buys one unit.
wrk.method = "POST"
