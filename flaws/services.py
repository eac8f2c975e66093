# SPDX-License-Identifier: Apache-2.0
"""The stages of the services beside the shop, by their names."""
from menu_stage import MenuStage

STAGES = {stage.service: stage for stage in (MenuStage,)}
